"""How fast this project trains, beside the stack people use, in one interleaved run.

python benchmarks/training.py
python benchmarks/training.py --models resnet20 --rounds 9 --compile
"""

import argparse
import contextlib
import dataclasses
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measurements import (
    Figure,
    OtherPrograms,
    Target,
    append_rows,
    describe_run,
    interleave,
    print_table,
    ratios,
    to_rows,
)
from benchmarks.stacks import (
    NUM_READ_AHEAD,
    SEED,
    WARMUP_STEPS,
    Net,
    TrainerSegments,
    UsualStack,
    load_data,
    prepared_batches,
    step_of,
    time_steps,
    trainer_config,
)
from zoo.config import RunConfig
from zoo.data.data_module import ImageDataModule, TensorSet
from zoo.evaluation.complexity import count_macs
from zoo.training.image_classifier import ImageClassifier

RESULTS = Path(__file__).parent / "results" / "training.csv"
WIDTH_OF_MODEL = {"resnet20": 1.0, "mobilenet_v2": 0.25}  # depthwise convolutions are slow on CPUs; all in minutes
ATTENTIONS = ("none", "se", "cbam")
IMAGE_SIZE = (3, 32, 32)
MIN_STEPS = 2
MATRIX_SIZE = 2048
FLOPS_PER_MAC_TRAINED = 6  # 2 per MAC, once forward and twice backward

END_TO_END = "end to end"
STEP = "step alone"
COMPILED_STEP = "step alone, compiled"
WITHOUT_TRAINER = "end to end, plain loop instead of the trainer"
PREPARATION = "share of data preparation"
USUAL_END_TO_END = "usual stack, end to end"
USUAL_STEP = "usual stack, step alone"

MACHINE = "this machine"
QUIET_TARGET = Target(3.0, "at most")
STEP_TARGETS = {"se": Target(0.90), "cbam": Target(0.62)}
USUAL_TARGETS = {"resnet20": Target(2.4), "resnet20 cbam": Target(1.9)}
PREPARATION_TARGET = Target(8.0, "at most")
IMPORT_TARGET = Target(1.3, "at most")


class Contest:
    """All measures of one run, over the same images.

    Args:
        nets: The nets.
        data: What they train on.
        usual: The rival.
        folder: Where the trainer may write.
        segment_s: Seconds a segment aims at; it has at least two steps and at most an epoch.
        compiled: Whether to measure the step of the compiled net too.
    """

    def __init__(
        self,
        nets: Sequence[Net],
        data: ImageDataModule,
        usual: UsualStack,
        folder: Path,
        segment_s: float,
        *,
        compiled: bool,
    ) -> None:
        self.compiled = compiled
        self.data = data
        self.usual = usual
        self.folder = folder
        self.segment_s = segment_s
        self.config = trainer_config(data.batch_size)
        self.precision = self.config.trainer["precision"]
        self.max_steps = len(data.create_sampler("train")) - WARMUP_STEPS - NUM_READ_AHEAD
        self.trainers: dict[Net, TrainerSegments] = {}
        self.measures: dict[tuple[Net, str], Callable[[], float]] = {}
        for net in nets:
            self._enter(net)

    def _enter(self, net: Net) -> None:
        """Add the measures of a net, each warmed up and with a number of steps that fills a segment."""
        data = self.data
        self.trainers[net] = TrainerSegments(net, data, self.folder / net.subject, self.config)
        step = self._step(net, self.config)
        prepared = next(prepared_batches(data))
        self._add(net, END_TO_END, self.trainers[net].run)
        self._add(net, STEP, lambda count: time_steps(step, itertools.repeat(prepared), count))
        if self.compiled:
            compiled_step = self._step(net, dataclasses.replace(self.config, compile=True))
            time_steps(compiled_step, itertools.repeat(prepared), MIN_STEPS)  # compiles
            self._add(net, COMPILED_STEP, lambda count: time_steps(compiled_step, itertools.repeat(prepared), count))
        self._add(net, WITHOUT_TRAINER, lambda count: time_steps(step, prepared_batches(data), count))
        self._add(net, USUAL_END_TO_END, lambda count: self.usual.run(net, count, end_to_end=True))
        self._add(net, USUAL_STEP, lambda count: self.usual.run(net, count, end_to_end=False))

    def _step(self, net: Net, config: RunConfig) -> Callable[[Tensor, Tensor], None]:
        system = ImageClassifier.from_config(net.create(self.data.num_classes), self.data, config)
        return step_of(system, autocast=self.precision == "bf16-mixed")

    def _add(self, net: Net, what: str, run: Callable[[int], float]) -> None:
        seconds_per_step = self.data.batch_size / run(MIN_STEPS)
        count = min(max(MIN_STEPS, round(self.segment_s / seconds_per_step)), self.max_steps)
        self.measures[net, what] = lambda: run(count)


def matrix_rate(precision: str) -> float:
    """Return the FLOPs per second of a product of two large matrices in the dtype of a precision."""
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    left, right = (torch.ones(MATRIX_SIZE, MATRIX_SIZE, dtype=dtype) for _ in range(2))
    times = []
    for _ in range(10):
        started = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - started)
    return 2 * MATRIX_SIZE**3 / min(times)


def import_seconds(package: str) -> float:
    """Return the seconds a fresh interpreter takes to import a package."""
    code = f"import time; start = time.perf_counter(); import {package}; print(time.perf_counter() - start)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(answer.stdout)


def measure(
    nets: Sequence[Net], data: ImageDataModule, *, rounds: int, seconds: float, compiled: bool = False
) -> list[Figure]:
    """Measure everything in interleaved rounds and return the figures.

    Args:
        nets: The nets.
        data: What they train on.
        rounds: How often each measure is taken.
        seconds: Time for all segments of all rounds together; warming up and compiling come on top.
        compiled: Whether to measure the step of the compiled nets too.
    """
    speeds = (END_TO_END, STEP, *([COMPILED_STEP] if compiled else []), WITHOUT_TRAINER, USUAL_END_TO_END, USUAL_STEP)
    num_measures = len(nets) * len(speeds)
    others = OtherPrograms()
    train = data.read_splits()["train"]
    assert isinstance(train, TensorSet)
    usual = UsualStack(train.images, train.labels, data.num_classes, data.batch_size)
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(usual):
        segment_s = seconds / (rounds * num_measures)
        contest = Contest(nets, data, usual, Path(folder), segment_s, compiled=compiled)
        for trainer_segments in contest.trainers.values():
            trainer_segments.shares_between.clear()
        measures: dict[Any, Callable[[], float]] = dict(contest.measures)
        measures["matrix"] = lambda: matrix_rate(contest.precision)
        for package in ("torch", "zoo"):
            measures["import", package] = partial(import_seconds, package)
        values = interleave(measures, rounds)
        shares = {net: tuple(segments.shares_between) for net, segments in contest.trainers.items()}
    disturbance = others.share()
    figures = machine_figures(values, contest.precision)
    figures.append(Figure(MACHINE, "processor time of other programs", "%", (disturbance,), QUIET_TARGET))
    for net in nets:
        figures += net_figures(net, values, shares[net], contest.precision, data.num_classes)
    return figures


def machine_figures(values: dict[Any, tuple[float, ...]], precision: str) -> list[Figure]:
    """Return what does not depend on a net."""
    rate = tuple(value / 1e12 for value in values["matrix"])
    import_ratio = ratios(values["import", "zoo"], values["import", "torch"])
    return [
        Figure(MACHINE, f"rate of {MATRIX_SIZE} x {MATRIX_SIZE} matrix products", "TFLOP/s", rate, precision=precision),
        Figure(MACHINE, "import torch", "s", values["import", "torch"]),
        Figure(MACHINE, "import zoo", "s", values["import", "zoo"]),
        Figure(MACHINE, "import zoo / import torch", "x", import_ratio, IMPORT_TARGET),
    ]


def net_figures(
    net: Net, values: dict[Any, tuple[float, ...]], shares: tuple[float, ...], precision: str, num_classes: int
) -> list[Figure]:
    """Return the figures of one net: speeds, the ratios with a target, and how far the bound is."""
    subject = net.subject
    figures = [
        Figure(subject, what, "images/s", values[net, what], precision="32-true" if "usual" in what else precision)
        for what in (END_TO_END, STEP, COMPILED_STEP, WITHOUT_TRAINER, USUAL_END_TO_END, USUAL_STEP)
        if (net, what) in values
    ]

    def add_ratio(what: str, above: Any, below: Any, target: Target | None = None) -> None:
        figures.append(Figure(subject, what, "x", ratios(values[above], values[below]), target, precision))

    add_ratio("end to end / usual stack", (net, END_TO_END), (net, USUAL_END_TO_END), USUAL_TARGETS.get(subject))
    add_ratio("step alone / usual step", (net, STEP), (net, USUAL_STEP))
    add_ratio("end to end / step alone", (net, END_TO_END), (net, STEP))
    plain = dataclasses.replace(net, attention="none")
    for what in (STEP, COMPILED_STEP):
        if plain != net and (plain, what) in values:
            target = STEP_TARGETS[net.attention] if net.model == "resnet20" else None
            add_ratio(f"{what} / plain net's", (net, what), (plain, what), target)
    if (net, COMPILED_STEP) in values:
        add_ratio("step alone, compiled / not compiled", (net, COMPILED_STEP), (net, STEP))
    figures.append(Figure(subject, PREPARATION, "%", shares, PREPARATION_TARGET, precision))
    macs = count_macs(net.create(num_classes), IMAGE_SIZE)
    bound = tuple(rate / (FLOPS_PER_MAC_TRAINED * macs) for rate in values["matrix"])
    reached = tuple(100 * share for share in ratios(values[net, STEP], bound))
    figures.append(Figure(subject, "MACs x 6 at the matrix rate", "images/s", bound, precision=precision))
    figures.append(Figure(subject, "step alone, share of that bound", "%", reached, precision=precision))
    return figures


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="how often each measure is taken (5)")
    parser.add_argument("--models", nargs="+", choices=list(WIDTH_OF_MODEL), default=list(WIDTH_OF_MODEL))
    parser.add_argument(
        "--seconds", type=float, default=150, help="for all segments together; start-up and warm-up add to it (150)"
    )
    parser.add_argument("--compile", action="store_true", help="measure compiled steps too; takes a C++ compiler")
    parser.add_argument("--batch_size", type=int, default=128, help="images per step (128)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="CSV file that receives the rows")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, append the rows and print the table."""
    options = parse_arguments(arguments)
    nets = [Net(model, attention, WIDTH_OF_MODEL[model]) for model in options.models for attention in ATTENTIONS]
    data = load_data(options.batch_size)
    run = describe_run(seed=SEED, batch_size=options.batch_size, data=data.name)
    figures = measure(nets, data, rounds=options.rounds, seconds=options.seconds, compiled=options.compile)
    append_rows(options.output, to_rows(run, figures))
    print_table(f"Training speed, {run['num_threads']} threads, batches of {options.batch_size}, {data.name}", figures)
    print(f"Rows appended to {options.output}")


if __name__ == "__main__":
    main()
