"""How many runs of what length fit into a budget of minutes, from a measured pace."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from zoo.comparison.recommendation.sequential import FIRST_LOOK, plan_looks

TARGET_SEEDS = 5
"""Runs are as long as lets this many seeds of every net fit; more budget than the longest runs need buys seeds."""

MAX_SEEDS = 12
MIN_EPOCHS = 3
MIN_STEPS = 300
"""Runs get at least so many optimizer steps before more seeds than the first look needs are planned: what stops in the
middle of learning tells seeds apart more than nets."""

MAX_EPOCHS = 15
MAX_STEPS = 1500
"""On few images the longest run is so many optimizer steps instead of ``MAX_EPOCHS``."""

SAFETY = 0.85
"""Share of the time left that is planned for: paces are measured in seconds and then hold for minutes."""


@dataclass(frozen=True)
class Pace:
    """What a run costs.

    Args:
        overhead_s: Seconds of a run that do not grow with its length: starting, testing, saving, judging.
        epoch_s: Seconds of an epoch with its validation, by net.
        steps_per_epoch: Optimizer steps of an epoch.
    """

    overhead_s: float
    epoch_s: Mapping[str, float]
    steps_per_epoch: int

    def run_seconds(self, net: str, epochs: int) -> float:
        """Return what a run of one net takes."""
        return self.overhead_s + epochs * self.epoch_s[net]

    def seed_seconds(self, epochs: int) -> float:
        """Return what one seed of every net takes."""
        return sum(self.run_seconds(net, epochs) for net in self.epoch_s)


@dataclass(frozen=True)
class TrialPlan:
    """The runs that were decided on before the first one.

    Args:
        epochs: Length of every run.
        looks: Numbers of seeds at which the differences are looked at.
    """

    epochs: int
    looks: tuple[int, ...]


def plan_trials(available_s: float, pace: Pace) -> TrialPlan:
    """Choose length and number of the runs.

    Length comes first: a gate that needs an epoch or two to open is judged unfairly by runs that end there. With the
    time for ``TARGET_SEEDS`` seeds runs get as long as fits, at most ``MAX_EPOCHS`` epochs (or ``MAX_STEPS`` steps,
    where those are more); what is left over buys seeds. Where ``MIN_EPOCHS`` epochs and ``MIN_STEPS`` steps do not fit
    so often, fewer seeds are planned, but never fewer than the first look needs; these have ``MIN_EPOCHS`` at least.

    Args:
        available_s: Seconds left of the budget.
        pace: Measured.

    Raises:
        ValueError: The first look does not fit; the message says how many minutes it needs.

    >>> plan_trials(3600, Pace(overhead_s=10, epoch_s={"none": 5, "se": 6, "cbam": 9}, steps_per_epoch=40))
    TrialPlan(epochs=29, looks=(3, 5))
    """
    usable = SAFETY * available_s
    longest = max(MAX_EPOCHS, math.ceil(MAX_STEPS / pace.steps_per_epoch))
    shortest = max(MIN_EPOCHS, math.ceil(MIN_STEPS / pace.steps_per_epoch))
    for seeds in range(TARGET_SEEDS, FIRST_LOOK - 1, -1):
        epochs = min(longest, _epochs_that_fit(usable / seeds, pace))
        if epochs >= (MIN_EPOCHS if seeds == FIRST_LOOK else shortest):
            fitting = int(usable / pace.seed_seconds(epochs))
            return TrialPlan(epochs, plan_looks(min(MAX_SEEDS, max(seeds, fitting))))
    needed = FIRST_LOOK * pace.seed_seconds(MIN_EPOCHS) / SAFETY
    raise ValueError(
        f"{FIRST_LOOK} seeds of {len(pace.epoch_s)} nets at {MIN_EPOCHS} epochs take {needed / 60:.1f} minutes here, "
        f"but {max(available_s, 0) / 60:.1f} are left; give --budget more minutes, or make runs shorter with a smaller "
        "--data.image_size, a lighter --model or --trainer.limit_train_batches"
    )


def _epochs_that_fit(seconds_per_seed: float, pace: Pace) -> int:
    return int((seconds_per_seed - pace.seed_seconds(0)) / sum(pace.epoch_s.values()))
