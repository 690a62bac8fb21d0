"""The paired runs of a recommendation: carried out while time is left, and judged on held-out images."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import zoo
from zoo.comparison.choices import Choice
from zoo.comparison.engines.local import Outcome, run_all
from zoo.comparison.recommendation.planning import Pace, TrialPlan
from zoo.comparison.runs import Digests, RunPlan, assess
from zoo.comparison.study import Study, merge
from zoo.data.data_module import ImageDataModule
from zoo.evaluation.predictions import predict_dataset
from zoo.models.backbone import Backbone
from zoo.provenance import code_digest

PLAIN = "none"

Answers = npt.NDArray[np.bool_]
"""Of each held-out image whether the net was right, (images,)."""


class BudgetSpentError(Exception):
    """The time is up; the run that was going on has saved its state."""


class Clock:
    """The budget of a recommendation, over all its sessions.

    It is also the monitor of a run: it stops the run when the time is up, and nothing else.

    Args:
        budget_s: Seconds in all.
        used_s: Seconds that earlier sessions used.
        say: Told of every run that ends.
    """

    def __init__(self, budget_s: float, used_s: float, say: Callable[[str], None]) -> None:
        self.budget_s = budget_s
        self._used_before_s = used_s
        self._started = time.monotonic()
        self._say = say

    @property
    def used_s(self) -> float:
        """Seconds used so far."""
        return self._used_before_s + time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        """Seconds left, negative when there are none."""
        return self.budget_s - self.used_s

    def started(self, plan: RunPlan) -> None:
        """Hear of a run that begins; it is told of when it ends."""

    def waited(self, running: Sequence[RunPlan]) -> None:
        """Stop what runs when the time is up.

        Raises:
            BudgetSpentError: It is.
        """
        if running and self.left_s <= 0:
            raise BudgetSpentError

    def ended(self, outcome: Outcome) -> None:
        """Tell of a run that ended."""
        if not outcome.failed:
            self._say(f"{outcome.plan.label}: {outcome.seconds:.0f} s, {max(self.left_s, 0) / 60:.1f} minutes left")


def create_study(
    model: Choice, gates: Sequence[Choice], data: Choice, *, recipe: dict[str, Any], epochs: int, seeds: int
) -> Study:
    """Return the grid that the runs of a recommendation are taken from: the plain net and each gate."""
    return Study(
        name="recommendation",
        models=(model,),
        attention=(Choice(PLAIN), *gates),
        data=(data,),
        seeds=tuple(range(seeds)),
        recipe=merge(recipe, {"trainer": {**recipe.get("trainer", {}), "max_epochs": epochs}}),
    )


@dataclass
class Trials:
    """Runs by net and seed, made when they are asked for.

    Args:
        study: The grid; nets are called by their attention's name.
        plan: Length and number of runs.
        pace: What they are expected to take; corrected by those that took longer.
        data: Read.
        device: Where answers are computed.
        folder: Of the runs.
        clock: The budget.
    """

    study: Study
    plan: TrialPlan
    pace: Pace
    data: ImageDataModule
    device: torch.device
    folder: Path
    clock: Clock
    answers: dict[tuple[str, int], Answers] = field(default_factory=dict)
    _slowest_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [choice.name for choice in self.study.attention]
        self._plans = {
            (names[number % len(names)], plan.config.seed): plan
            for number, plan in enumerate(self.study.plans(self.folder))
        }
        self._digests = Digests(code_digest(), self.data.digest())

    def carry_out(self, nets: Sequence[str], num_seeds: int) -> int:
        """Train what is missing of the first ``num_seeds`` seeds of some nets, seed by seed, while time is left.

        Returns:
            Of how many seeds all these nets stand; fewer than asked for when time ran out.

        Raises:
            ValueError: A run failed.
        """
        for seed in range(num_seeds):
            missing = [net for net in nets if (net, seed) not in self.answers]
            try:
                for done, net in enumerate(missing):
                    self._carry_out_one(net, seed, sum(self._expected_s(other) for other in missing[done:]))
            except BudgetSpentError:
                return seed
        return num_seeds

    def _carry_out_one(self, net: str, seed: int, expected_s: float) -> None:
        plan = self._plans[net, seed]
        if assess(plan, self._digests).status != "finished":
            if expected_s > self.clock.left_s:
                raise BudgetSpentError
            (outcome,) = run_all([plan], monitor=self.clock)
            if outcome.failed:
                raise ValueError(f"the run {plan.label} failed: {outcome.message} (its log is {plan.log})")
            self._slowest_s[net] = max(self._slowest_s.get(net, 0.0), outcome.seconds)
        self.answers[net, seed] = self.judge(self.load(net, seed))

    def _expected_s(self, net: str) -> float:
        return max(self.pace.run_seconds(net, self.plan.epochs), self._slowest_s.get(net, 0.0))

    def load(self, net: str, seed: int) -> Backbone:
        """Return a net as its last epoch left it.

        The last epoch, not the best on held-out images: those images judge the nets here, and must not choose too.
        """
        plan = self._plans[net, seed]
        return load_last_epoch(plan, self.data)

    def judge(self, model: Backbone) -> Answers:
        """Say of each held-out image whether the model is right."""
        return judge(model, self.data, self.device)

    def plan_of(self, net: str, seed: int) -> RunPlan:
        """Return the run of a net and a seed."""
        return self._plans[net, seed]

    def stack(self, net: str, num_seeds: int) -> list[Answers]:
        """Return the answers of the first seeds of a net."""
        return [self.answers[net, seed] for seed in range(num_seeds)]


def load_last_epoch(plan: RunPlan, data: ImageDataModule) -> Backbone:
    """Return the net of a run as its last epoch left it."""
    model = zoo.create_model(**plan.config.model, num_classes=data.num_classes, in_channels=data.in_channels)
    content = torch.load(plan.run.last, map_location="cpu", weights_only=True)
    prefix = "model."
    state = {key.removeprefix(prefix): value for key, value in content["state_dict"].items() if key.startswith(prefix)}
    model.load_state_dict(state)
    return model


def judge(model: Backbone, data: ImageDataModule, device: torch.device) -> Answers:
    """Say of each held-out image, in the order of the split, whether the model is right."""
    prepare = partial(data.prepare_batch, training=False)
    predictions = predict_dataset(model.to(device), data.create_loader("val"), prepare, device=device)
    data.teardown()
    return (predictions.logits.argmax(dim=1) == predictions.targets).numpy()
