"""Why does CBAM from its fresh start lose in a short training? One part of the gate changed at a time.

    python benchmarks/fresh_start.py

trains what is missing and appends a row per run to ``benchmarks/results/fresh_start.csv``. Data and recipe are those of
the study ``configs/studies/cluttered_digits_claims.yaml`` where it lost most: digits anywhere in clutter. All nets of a
seed start from the same backbone and see the same images in the same order.
"""

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

import zoo
from benchmarks.accuracy_by_epoch import train_and_test
from benchmarks.measurements import append_rows, describe_run
from zoo.comparison.study import read_study
from zoo.config import RunConfig
from zoo.data.data_module import ImageDataModule
from zoo.models.backbone import Backbone
from zoo.serialization import write_atomically
from zoo.training.callbacks import TrainingInterrupted
from zoo.training.run import RunFolder

ROOT = Path(__file__).resolve().parent.parent
STUDY = ROOT / "configs" / "studies" / "cluttered_digits_claims.yaml"
RESULTS = ROOT / "benchmarks" / "results" / "fresh_start.csv"
DATA = "cluttered_digits(position_jitter=1.0, clutter=8)"
FRESH_MEAN = 0.25  # of a channel gate of 1/2 times a spatial gate of 1/2


class Times(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the multiplied feature map."""
        return feature_map * self.factor


class Arm(NamedTuple):
    """What stands at the places of the gates: ``kind`` is the name in :func:`change_gates`."""

    kind: str
    meaning: str
    attention: str | None = "cbam"
    identity_start: bool = False


ARMS = (
    Arm("plain", "the plain net", None),
    Arm("quarter", "no gate; each branch times 0.25, the mean of a fresh CBAM"),
    Arm("fresh", "CBAM, fresh start"),
    Arm("still", "CBAM, fresh start, its parameters never trained"),
    Arm("times four", "CBAM, fresh start, times 4: the branch keeps its mean scale"),
    Arm("identity", "CBAM, identity start", "cbam", True),
)


def change_gates(model: Backbone, kind: str) -> None:
    """Turn the gates of a net with fresh CBAM into those of an arm."""
    for place in model.attention_places():
        gate = model.get_submodule(place.name)
        if kind == "quarter":
            model.set_submodule(place.name, Times(FRESH_MEAN))
        elif kind == "times four":
            model.set_submodule(place.name, nn.Sequential(gate, Times(1 / FRESH_MEAN)))
        elif kind == "still":
            gate.requires_grad_(False)


def train(arm: Arm, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Train once, or take up where that was interrupted; return accuracies and loss after the last epoch."""
    run = RunFolder(options.output_dir / arm.kind.replace(" ", "_") / f"seed{seed}")
    config = create_config(arm, seed, run.path, options)

    def changed(data: ImageDataModule) -> nn.Module:
        model = zoo.create_model(**config.model, num_classes=data.num_classes, in_channels=data.in_channels)
        assert isinstance(model, Backbone)
        change_gates(model, arm.kind)
        return model

    last = config.trainer["max_epochs"]
    top1 = train_and_test(config, changed, [last])[last]
    with run.epochs.open(newline="", encoding="utf-8") as file:
        epoch = list(csv.DictReader(file))[-1]
    return {"top1": top1, **{name: float(epoch[name]) for name in ("train_loss", "train_top1")}}


def create_config(arm: Arm, seed: int, folder: Path, options: argparse.Namespace) -> RunConfig:
    """Return the study's run of the plain net with the arm's attention."""
    study = read_study(options.study)
    plans = study.plans(folder.parent)
    configs = [plan.config for plan in plans if plan.cell is not None and plan.cell.data == options.data]
    if not configs:
        known = ", ".join(choice.title for choice in study.data)
        raise ValueError(f"the study {study.name!r} has no data {options.data!r}. Known: {known}")
    config = configs[0]
    gate = {"attention_args": {"identity_start": arm.identity_start}} if arm.attention else {}
    model = {**config.model, "attention": arm.attention, **gate}
    trainer = {**config.trainer, "enable_progress_bar": False}
    return dataclasses.replace(
        config, model=model, trainer=trainer, seed=seed, run_dir=str(folder), compile=options.compile
    )


def run_missing(options: argparse.Namespace) -> None:
    """Train every arm with every seed, seeds in turn, and append a run's row once it is complete."""
    for seed in options.seeds:
        for arm in ARMS:
            record = options.output_dir / arm.kind.replace(" ", "_") / f"seed{seed}" / "accuracy.json"
            if record.exists():
                continue
            found = train(arm, seed, options)
            row = {
                **describe_run(seed=seed, data=options.data, compiled=options.compile),
                "arm": arm.kind,
                "meaning": arm.meaning,
            }
            append_rows(options.output, [row | {name: f"{value:.4f}" for name, value in found.items()}])
            write_atomically(record, json.dumps(found) + "\n")
            print(f"{arm.meaning}, seed {seed}: {100 * found['top1']:.2f} %", flush=True)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--study", type=Path, default=STUDY, help="study whose recipe and plain net are taken")
    parser.add_argument("--data", default=DATA, help="title of the study's data set")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="0 1 2 3 4")
    parser.add_argument("--compile", action="store_true", help="train compiled, which is faster; tests stay eager")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/fresh_start"), help="folders of the runs")
    parser.add_argument("--output", type=Path, default=RESULTS, help="CSV file that receives the rows")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing; return the exit status."""
    try:
        run_missing(parse_arguments(arguments))
    except (TrainingInterrupted, KeyboardInterrupt):
        print("\nStopped; the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
