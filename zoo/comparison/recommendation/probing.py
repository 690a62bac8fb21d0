"""What has to be measured before runs can be planned: prices of the nets, and the pace of a run."""

import csv
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import torch

from zoo.comparison.choices import Choice
from zoo.comparison.collection import ImageShape
from zoo.comparison.engines.local import run_all, shared_threads
from zoo.comparison.recommendation.answer import Request
from zoo.comparison.recommendation.planning import Pace
from zoo.comparison.recommendation.price import Price, measure_prices
from zoo.comparison.recommendation.trials import PLAIN, BudgetSpentError, Clock, create_study, judge, load_last_epoch
from zoo.comparison.study import Study, merge
from zoo.data import create_data
from zoo.data.data_module import ImageDataModule
from zoo.evaluation.predictions import choose_device

_PROBE_SECONDS = 8.0
_FEWEST_BATCHES, _MOST_BATCHES = 5, 30
_PROBE_EPOCHS = 2
"""The first makes kernels ready, which on small folders takes longer than the epoch itself; the last one counts."""


@dataclass(frozen=True)
class Workplace:
    """What a request is worked on with.

    Args:
        request: The request.
        data: Read and checked.
        device: Where nets are judged, as they are trained.
    """

    request: Request
    data: ImageDataModule
    device: torch.device

    @classmethod
    def open(cls, request: Request, gates: Sequence[Choice]) -> "Workplace":
        """Resolve the options of a request and read its data.

        Raises:
            ValueError: An option is unknown or wrong, or the data will not do.
        """
        config = _study(request, gates).plans(request.folder)[0].config
        data = create_data(**config.data, shuffle_seed=config.seed)
        data.check()
        return cls(request, data, choose_device("cpu" if config.trainer["accelerator"] == "cpu" else "auto"))

    def measure_prices(self, gates: Sequence[Choice]) -> dict[str, Price]:
        """Measure the plain net and every gate side by side, at the data's image size."""
        plans = _study(self.request, gates).plans(self.request.folder)
        shape = ImageShape((self.data.in_channels, *self.data.image_size), self.data.num_classes)
        configs = {plan.config.model["attention"]: plan.config for plan in plans}
        return measure_prices(configs, shape, num_threads=shared_threads(1))

    def measure_pace(self, nets: Sequence[str], prices: Mapping[str, Price], clock: Clock) -> Pace:
        """Measure what runs take by a real one of the plain net over two epochs of a few batches.

        The other nets' training is taken to be slower by as much as their steps are.

        Raises:
            ValueError: The run failed, or the budget does not even last for it.
        """
        steps = count_steps(self.data, self.request.recipe.get("trainer", {}).get("limit_train_batches"))
        batches = min(max(int(1000 * _PROBE_SECONDS / prices[PLAIN].step_ms), _FEWEST_BATCHES), _MOST_BATCHES, steps)
        folder = self.request.folder / "probe"
        (plan,) = _study(self.request, (), limit_train_batches=batches).plans(folder)
        try:
            (outcome,) = run_all([plan], monitor=clock)
        except BudgetSpentError:
            raise ValueError("the budget was spent on measuring the pace; give --budget more minutes") from None
        if outcome.failed:
            raise ValueError(f"the run that measures the pace failed: {outcome.message} (its log is {plan.log})")
        started = monotonic()
        judge(load_last_epoch(plan, self.data), self.data, self.device)
        judged_s = monotonic() - started
        with plan.run.epochs.open(encoding="utf-8", newline="") as file:
            *_, last = csv.DictReader(file)
        train_s = float(last["train_seconds"])
        shutil.rmtree(folder)
        return Pace(
            overhead_s=outcome.seconds - _PROBE_EPOCHS * train_s + judged_s,
            epoch_s={net: train_s / batches * steps * prices[net].training.median + judged_s for net in nets},
            steps_per_epoch=steps,
        )


def _study(request: Request, gates: Sequence[Choice], **trainer: object) -> Study:
    recipe = merge(dict(request.recipe), {"trainer": trainer})
    warmup = recipe.get("optimization", {}).get("warmup_epochs")
    if isinstance(warmup, int | float) and warmup >= _PROBE_EPOCHS:  # the warm-up of longer runs; this one is timed
        recipe = merge(recipe, {"optimization": {"warmup_epochs": _PROBE_EPOCHS / 2}})
    return create_study(request.model, gates, request.data, recipe=recipe, epochs=_PROBE_EPOCHS, seeds=1)


def count_steps(data: ImageDataModule, limit: float | int | None) -> int:
    """Return the optimizer steps of an epoch, under Lightning's ``limit_train_batches``: a count, or a share.

    Gradient accumulation makes fewer of them; each then takes as much longer.
    """
    batches = len(data.create_sampler("train"))
    if limit is None:
        return batches
    return max(1, min(batches, limit if isinstance(limit, int) else int(limit * batches)))
