"""What a gate costs beside the plain net, measured in turns so that a machine that slows down moves no ratio."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

import zoo
from zoo.comparison.collection import ImageShape
from zoo.comparison.cost import MeasuredNet
from zoo.config import RunConfig
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.evaluation.latency import measure_latency
from zoo.training.run import quiet_lightning

ROUNDS = 5
_LATENCY_BUDGET_S = 0.2


@dataclass(frozen=True)
class Ratio:
    """A quantity of a gated net over that of the plain net: the median round, and the rounds' range.

    >>> Ratio.of([1.2, 1.1, 1.5])
    Ratio(median=1.2, low=1.1, high=1.5)
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Ratio":
        """Sum up one ratio per round."""
        return cls(statistics.median(values), min(values), max(values))

    @property
    def percent(self) -> float:
        """How much more it is, in percent of the plain net's."""
        return 100 * (self.median - 1)


@dataclass(frozen=True)
class Price:
    """The cost of one net.

    Args:
        parameters: Trainable parameters.
        macs: Multiply-accumulate operations per image.
        latency_ms: Of one image, the median round.
        latency: Of one image, over the plain net's.
        step_ms: Milliseconds of a training step, the median round.
        training: Of a training step, over the plain net's.
    """

    parameters: int
    macs: int
    latency_ms: float
    latency: Ratio
    step_ms: float
    training: Ratio


def measure_prices(
    configs: Mapping[str, RunConfig], shape: ImageShape, *, num_threads: int, rounds: int = ROUNDS
) -> dict[str, Price]:
    """Measure latency and training steps of all nets in every round, every other round backwards.

    Args:
        configs: Of one run of each net; the first is the plain net.
        shape: Of images and logits.
        num_threads: On the CPU.
        rounds: At least 1.
    """
    quiet_lightning()
    names = list(configs)
    nets = {name: MeasuredNet(config, shape) for name, config in configs.items()}
    models = {name: create_net(config, shape).to(nets[name].device) for name, config in configs.items()}
    latency: dict[str, list[float]] = {name: [] for name in names}
    steps: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):  # the first round only warms up
        for name in names if number % 2 == 0 else reversed(names):
            step_ms = nets[name].step_ms(num_threads)
            (timing,) = measure_latency(
                models[name],
                shape.input_size,
                batch_sizes=(1,),
                num_threads=num_threads,
                device=nets[name].device,
                budget_s=_LATENCY_BUDGET_S,
            )
            if number >= 0:
                latency[name].append(timing.median_ms)
                steps[name].append(step_ms)
    plain = names[0]
    return {
        name: Price(
            parameters=count_parameters(models[name]),
            macs=count_macs(models[name], shape.input_size),
            latency_ms=statistics.median(latency[name]),
            latency=_over(latency[name], latency[plain]),
            step_ms=statistics.median(steps[name]),
            training=_over(steps[name], steps[plain]),
        )
        for name in names
    }


def create_net(config: RunConfig, shape: ImageShape) -> nn.Module:
    """Create the net of a run."""
    return zoo.create_model(**config.model, num_classes=shape.num_classes, in_channels=shape.input_size[0])


def _over(values: list[float], plain: list[float]) -> Ratio:
    return Ratio.of([value / base for value, base in zip(values, plain, strict=True)])
