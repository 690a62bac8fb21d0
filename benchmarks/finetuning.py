"""Fine-tuning a trained network with inserted gates: from the identity, from a fresh start, or without gates.

python benchmarks/finetuning.py                 trains what is missing, then writes table and picture
python benchmarks/finetuning.py --write_docs    trains nothing; writes table and picture from the rows that there are
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

import zoo
from benchmarks.accuracy_by_epoch import train_and_test
from benchmarks.documents import fill_section, format_table
from benchmarks.measurements import append_rows, describe_run
from zoo.config import RunConfig, parse_run_config
from zoo.data.data_module import ImageDataModule
from zoo.serialization import write_atomically
from zoo.training.callbacks import TrainingInterrupted

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "finetuning.csv"
DOCUMENT = ROOT / "docs" / "inserting-attention.md"
PICTURE = "finetuning.png"
SECTION = "finetuning"
PEAK_LR = 0.01


class Arm(NamedTuple):
    """One way to fine-tune: the mechanism, ``None`` for none, and where its gates start."""

    attention: str | None
    identity_start: bool = False

    def __str__(self) -> str:
        start = "identity start" if self.identity_start else "fresh start"
        return "plain" if self.attention is None else f"{self.attention}, {start}"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return str(self).replace(", ", "_").replace(" ", "_")


ARMS = (Arm(None), Arm("se", True), Arm("se", False), Arm("cbam", True), Arm("cbam", False))
COLOURS = {"plain": "black", "se": "tab:blue", "cbam": "tab:orange"}


def finetune(arm: Arm, seed: int, options: argparse.Namespace) -> dict[int, float]:
    """Fine-tune once, or take up where that was interrupted, and return the test accuracy after each chosen epoch."""
    config = create_config(arm, seed, options.output_dir / arm.folder / f"seed{seed}", options)

    def gated(_: ImageDataModule) -> nn.Module:
        model = zoo.load_pretrained(options.weights)[0]
        if arm.attention is not None:
            zoo.insert_attention(model, arm.attention, identity_start=arm.identity_start)
        return model

    return train_and_test(config, gated, options.epochs)


def create_config(arm: Arm, seed: int, folder: Path, options: argparse.Namespace) -> RunConfig:
    """Return the recipe of the config file at a low learning rate, for as many epochs as are looked at."""
    arguments = ["--config", str(options.config), "--seed", str(seed), "--run_dir", str(folder)]
    arguments += ["--trainer.max_epochs", str(max(options.epochs)), "--trainer.enable_progress_bar", "false"]
    arguments += ["--optimization.peak_lr", str(PEAK_LR), "--optimization.warmup_epochs", "0"]
    arguments += ["--compile", str(options.compile).lower()]
    if arm.attention is not None:
        start = json.dumps({"identity_start": arm.identity_start})
        arguments += ["--model.attention", arm.attention, "--model.attention_args", start]
    return parse_run_config(arguments)


def run_missing(options: argparse.Namespace) -> None:
    """Fine-tune every arm with every seed, seeds in turn, and append a run's rows once it is complete."""
    for seed in options.seeds:
        for arm in ARMS:
            record = options.output_dir / arm.folder / f"seed{seed}" / "accuracy.json"
            if record.exists():
                continue
            top1 = finetune(arm, seed, options)
            name = Path(options.weights).name.removesuffix(".yaml").removesuffix(".safetensors")
            run = describe_run(weights=name, seed=seed, peak_lr=PEAK_LR, compiled=options.compile)
            rows = [{**run, "arm": str(arm), "epoch": epoch, "top1": f"{top1[epoch]:.4f}"} for epoch in options.epochs]
            append_rows(options.output, rows)
            write_atomically(record, json.dumps(top1) + "\n")
            print(f"{arm}, seed {seed}: " + ", ".join(f"{epoch}: {100 * top1[epoch]:.2f} %" for epoch in sorted(top1)))


OfArm = Mapping[int, Mapping[int, float]]
"""Test accuracy of one arm by epoch and seed."""
Accuracies = Mapping[str, OfArm]
"""The same by arm."""


def read_accuracies(path: Path) -> dict[str, dict[int, dict[int, float]]]:
    """Return the newest accuracies of each arm, epoch and seed, the arms in their order."""
    accuracies: dict[str, dict[int, dict[int, float]]] = {str(arm): {} for arm in ARMS}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            accuracies[row["arm"]].setdefault(int(row["epoch"]), {})[int(row["seed"])] = float(row["top1"])
    return {arm: epochs for arm, epochs in accuracies.items() if epochs}


def summarise(accuracies: Accuracies, path: Path) -> str:
    """Return the section of the document: accuracies and paired differences, where they come from, and the picture."""
    epochs = sorted({epoch for of_arm in accuracies.values() for epoch in of_arm})
    header = ["", *(f"after {epoch}" for epoch in epochs), f"minus plain after {epochs[-1]}"]
    body = []
    for arm, of_arm in accuracies.items():
        cells = [format_mean(list(of_arm[epoch].values())) if epoch in of_arm else "" for epoch in epochs]
        body.append([arm, *cells, format_difference(of_arm, accuracies.get("plain", {}), epochs[-1])])
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    run = rows[-1]
    seeds = sorted({int(row["seed"]) for row in rows})
    commits = ", ".join(dict.fromkeys(row["commit"][:10] for row in rows))
    origin = (
        f"Test top-1 in percent, mean and range over seeds {', '.join(map(str, seeds))}, from the weights "
        f"`{run['weights']}`, one cosine from {run['peak_lr']} over all epochs. {run['date'][:10]}, "
        f"{run['processor']}, torch {run['torch']}, lightning {run['lightning']}, commit {commits}."
    )
    return f"{format_table(header, body)}\n\n{origin}\n\n![Accuracy after each epoch of fine-tuning]({PICTURE})"


def format_mean(values: Sequence[float]) -> str:
    """Write accuracies as mean and range, in percent.

    >>> format_mean([0.9, 0.91, 0.92])
    '91.00 (90.00 to 92.00)'
    """
    low, mean, high = (100 * value for value in (min(values), statistics.fmean(values), max(values)))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def format_difference(of_arm: OfArm, plain: OfArm, epoch: int) -> str:
    """Write the differences to the plain runs of the same seeds, in points."""
    both = set(of_arm.get(epoch, {})) & set(plain.get(epoch, {}))
    if of_arm is plain or not both:
        return ""
    differences = [100 * (of_arm[epoch][seed] - plain[epoch][seed]) for seed in sorted(both)]
    return f"{statistics.fmean(differences):+.2f} ({min(differences):+.2f} to {max(differences):+.2f})"


def plot(accuracies: Accuracies, path: Path) -> None:
    """Draw accuracy over epochs, a line per arm through the means and a dot per seed; beside it, only what trained."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    whole, trained = figure.subplots(1, 2)
    for axes in (whole, trained):
        for arm, of_arm in accuracies.items():
            epochs = sorted(of_arm if axes is whole else of_arm.keys() - {0})
            if not epochs:
                continue
            colour = COLOURS[arm.split(",")[0]]
            means = [100 * statistics.fmean(of_arm[epoch].values()) for epoch in epochs]
            axes.plot(epochs, means, "--" if "fresh" in arm else "-", color=colour, label=arm)
            dots = [(epoch, 100 * value) for epoch in epochs for value in of_arm[epoch].values()]
            axes.plot(*zip(*dots, strict=True), ".", color=colour, markersize=4)
        axes.set(xlabel="epochs of fine-tuning", ylabel="test top-1 (%)")
        axes.grid(alpha=0.3)
    trained.set_title("after the first epoch", fontsize=10)
    trained.legend()
    write_atomically(path, FigureCanvasAgg(figure).print_png)


def write_documents(options: argparse.Namespace) -> None:
    """Write the table and the picture."""
    accuracies = read_accuracies(options.output)
    plot(accuracies, options.document.parent / PICTURE)
    fill_section(options.document, SECTION, summarise(accuracies, options.output))
    print(f"{options.document} and {PICTURE} beside it say what {options.output} holds")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    config = ROOT / "configs" / "cifar10" / "resnet20.yaml"
    parser.add_argument("--weights", default="resnet20.cifar10", help="name or file of the weights to start from")
    parser.add_argument("--config", type=Path, default=config, help="recipe of the data and the optimizer")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="0 1 2")
    parser.add_argument("--epochs", type=int, nargs="+", default=[0, 1, 2, 4], help="test after these (0 1 2 4)")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/finetuning"), help="folders of the runs")
    parser.add_argument("--output", type=Path, default=RESULTS, help="CSV file that receives the rows")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="document that receives the table")
    parser.add_argument("--compile", action="store_true", help="train compiled, which is faster; tests stay eager")
    parser.add_argument("--write_docs", action="store_true", help="train nothing; write table and picture")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing and write the documents; return the exit status."""
    options = parse_arguments(arguments)
    if not options.write_docs:
        try:
            run_missing(options)
        except (TrainingInterrupted, KeyboardInterrupt):
            print("\nStopped; the same command goes on from here.", file=sys.stderr)
            return 130
    write_documents(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
