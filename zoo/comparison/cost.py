"""What the gates of a study cost: latency and training rate of every cell beside its plain net, measured in turns."""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.fabric import Fabric

import zoo
from zoo.comparison.collection import ImageShape
from zoo.comparison.results import cost_table, empty_cost
from zoo.comparison.runs import Cell, RunPlan
from zoo.comparison.study import BASELINE
from zoo.config import RunConfig
from zoo.evaluation.latency import measure_latency, thread_limit
from zoo.provenance import code_digest, describe_commit, describe_hardware, describe_versions
from zoo.serialization import format_yaml, write_atomically
from zoo.training.image_classifier import ImageClassifier
from zoo.training.memory import keep_freed_memory
from zoo.training.optimization import create_optimizer
from zoo.training.run import quiet_lightning

BATCH_SIZES = (1, 64)
DEFAULT_ROUNDS = 7
TRAINED_STEPS = 2
_LATENCY_BUDGET_S = 0.1  # per net, batch size and round; five passes are timed in any case


class MeasuredNet:
    """One net in two copies, one to time in use and one to train on random images.

    Args:
        config: Of a run of the cell.
        shape: Of the images and logits.
    """

    def __init__(self, config: RunConfig, shape: ImageShape) -> None:
        create = {**config.model, "num_classes": shape.num_classes, "in_channels": shape.input_size[0]}
        self._shape = shape
        self._fabric = Fabric(
            accelerator=config.trainer["accelerator"], devices=1, precision=config.trainer["precision"]
        )
        self.device = self._fabric.device
        self._used = zoo.create_model(**create).to(self.device)
        trained = zoo.create_model(**create)
        if config.compile:
            trained.compile()
        system = ImageClassifier(
            trained,
            num_classes=shape.num_classes,
            optimization=config.optimization,
            channels_last=config.channels_last,
        )
        self._system = system
        self._step_model, self._optimizer = self._fabric.setup(system, create_optimizer(trained, config.optimization))
        generator = torch.Generator().manual_seed(0)
        size = config.data.get("batch_size", BATCH_SIZES[-1])
        self._images = torch.randn(size, *shape.input_size, generator=generator).to(self.device)
        self._labels = torch.randint(shape.num_classes, (size,), generator=generator).to(self.device)

    def latencies_ms(self, threads: int) -> list[float]:
        """Return the time of a forward pass, in milliseconds per batch, for each of ``BATCH_SIZES``."""
        measured = measure_latency(
            self._used,
            self._shape.input_size,
            batch_sizes=BATCH_SIZES,
            num_threads=threads,
            device=self.device,
            budget_s=_LATENCY_BUDGET_S,
        )
        return [latency.median_ms for latency in measured]

    def step_ms(self, threads: int) -> float:
        """Return the time of a training step in the recipe's precision, the images at hand on the device."""
        with thread_limit(threads):
            self.train_step()
            start = self._now()
            for _ in range(TRAINED_STEPS):
                self.train_step()
            return 1000 * (self._now() - start) / TRAINED_STEPS

    def train_step(self) -> None:
        """Train on one batch."""
        self._optimizer.zero_grad()
        loss = self._system.loss(self._step_model(self._images), self._labels)
        self._fabric.backward(loss)
        self._optimizer.step()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def measure_cost(
    plans: Sequence[RunPlan],
    shapes: Mapping[str, ImageShape],
    *,
    threads: int,
    rounds: int = DEFAULT_ROUNDS,
    say: Callable[[str], None] = print,
) -> pd.DataFrame:
    """Measure every cell of a study: in each round all nets, one after the other, every other round backwards.

    A ratio is taken within a round, so that a machine that gets slower or busier touches both its sides. Nets that the
    cells of several data sets have in common are measured once. The training rate is that of steps on images at hand:
    reading and augmenting them, the same for all cells, is left out. Memory that training frees is kept, as in a run.

    Args:
        plans: Of the study; one of each cell is looked at.
        shapes: Of images and logits, by the title of the data set.
        threads: Of the CPU.
        rounds: At least 1.
        say: Told of each round.

    Returns:
        The table ``StudyResults.cost``: medians over the rounds, with the lowest and highest round beside the ratios.

    Raises:
        ValueError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds ({rounds}) must be at least 1")
    quiet_lightning()
    keep_freed_memory()
    cells = distinct_cells(plans)
    keys = {cell: describe_net(plan, shapes[cell.data]) for cell, plan in cells.items()}
    nets: dict[str, MeasuredNet] = {}
    for cell, plan in cells.items():
        if keys[cell] not in nets:
            nets[keys[cell]] = MeasuredNet(plan.config, shapes[cell.data])
            nets[keys[cell]].step_ms(threads)  # compiles, and fills caches
    times: dict[str, list[list[float]]] = {key: [] for key in nets}
    for number in range(rounds):
        for key in list(nets) if number % 2 == 0 else list(nets)[::-1]:
            times[key].append([*nets[key].latencies_ms(threads), nets[key].step_ms(threads)])
        say(f"cost: round {number + 1} of {rounds} over {len(nets)} nets")
    commit = describe_commit()
    shared = {
        "threads": threads,
        "rounds": rounds,
        "hardware": json.dumps(describe_hardware(next(iter(nets.values())).device)),
        "versions": json.dumps(describe_versions()),
        "commit": commit["id"] if commit else None,
    }
    rows = []
    for cell, key in keys.items():
        names = {"cell": cell.title, "model": cell.model, "attention": cell.attention}
        plain = times[keys[dataclasses.replace(cell, attention=BASELINE)]]
        rows.append({**names, **compare_times(times[key], plain), **shared})
    return cost_table(rows)


def compare_times(times: Sequence[Sequence[float]], plain: Sequence[Sequence[float]]) -> dict[str, float]:
    """Compare the rounds of a net with those of its plain net.

    Args:
        times: Of each round the latencies in batches of 1 and 64 and the time of a training step.
        plain: The same of the plain net.

    >>> times, plain = [[2.0, 60.0, 100.0], [3.0, 90.0, 200.0]], [[2.0, 50.0, 80.0], [2.0, 60.0, 100.0]]
    >>> cost = compare_times(times, plain)
    >>> cost["latency_ms_batch1"], cost["latency_ratio_batch1"], cost["latency_ratio_batch1_high"]
    (2.5, 1.25, 1.5)
    >>> cost["train_rate_ratio"], cost["train_rate_ratio_low"], cost["train_rate_ratio_high"]
    (0.65, 0.5, 0.8)
    """
    quotients = [[own / other for own, other in zip(*rows, strict=True)] for rows in zip(times, plain, strict=True)]
    series = {
        "latency_ratio_batch1": [row[0] for row in quotients],
        "latency_ratio_batch64": [row[1] for row in quotients],
        "train_rate_ratio": [1 / row[2] for row in quotients],
    }
    cost = {"latency_ms_batch1": statistics.median(row[0] for row in times)}
    for name, values in series.items():
        cost |= {name: statistics.median(values), f"{name}_low": min(values), f"{name}_high": max(values)}
    return cost


def load_or_measure_cost(
    plans: Sequence[RunPlan], shapes: Mapping[str, ImageShape], path: Path, *, threads: int, rounds: int
) -> pd.DataFrame:
    """Return the cost that stands in a file, or measure it and write the file.

    What stands there counts when nets, recipe, code, versions, hardware, threads and rounds are the same.
    """
    stored = load_cost(plans, shapes, path, threads=threads, rounds=rounds)
    if not stored.empty:
        return stored
    cost = measure_cost(plans, shapes, threads=threads, rounds=rounds)
    key = _cost_key(plans, shapes, threads, rounds)
    write_atomically(path, json.dumps({**key, "cost": cost.to_dict("records")}, indent=2) + "\n")
    return cost


def load_cost(
    plans: Sequence[RunPlan], shapes: Mapping[str, ImageShape], path: Path, *, threads: int, rounds: int
) -> pd.DataFrame:
    """Return the cost that stands in a file, or no row where what stands there does not count or nothing does."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return empty_cost()
    wanted = _cost_key(plans, shapes, threads, rounds)
    return cost_table(stored["cost"]) if {key: stored.get(key) for key in wanted} == wanted else empty_cost()


def _cost_key(plans: Sequence[RunPlan], shapes: Mapping[str, ImageShape], threads: int, rounds: int) -> dict[str, Any]:
    return {
        "code_digest": code_digest(),
        "versions": describe_versions(),
        "hardware": describe_hardware(),
        "threads": threads,
        "rounds": rounds,
        "nets": {cell.title: describe_net(plan, shapes[cell.data]) for cell, plan in distinct_cells(plans).items()},
    }


def distinct_cells(plans: Sequence[RunPlan]) -> dict[Cell, RunPlan]:
    """Return each cell of the plans with its first run."""
    cells: dict[Cell, RunPlan] = {}
    for plan in plans:
        if plan.cell is not None:
            cells.setdefault(plan.cell, plan)
    return cells


def describe_net(plan: RunPlan, shape: ImageShape) -> str:
    """Write down all that the cost of a net depends on, apart from code and machine."""
    config = plan.config
    return format_yaml(
        {
            "model": dict(config.model),
            "optimization": dataclasses.asdict(config.optimization),
            "precision": config.trainer["precision"],
            "accelerator": config.trainer["accelerator"],
            "compile": config.compile,
            "channels_last": config.channels_last,
            "batch_size": config.data.get("batch_size"),
            "input_size": list(shape.input_size),
            "num_classes": shape.num_classes,
        }
    )
