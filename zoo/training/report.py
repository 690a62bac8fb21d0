"""The end of a run: the test set is used once, and what it showed is written beside the weights."""

import json
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from rich.console import Console
from rich.table import Table
from torch import nn

from zoo.config import RunConfig
from zoo.data.split_module import SplitDataModule
from zoo.evaluation.accuracy import scalar_metrics
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.models.captioner import with_fixed_words
from zoo.pretrained import WeightCard, save_weights
from zoo.provenance import code_digest, describe_hardware
from zoo.serialization import write_atomically
from zoo.training.callbacks import EpochLog, write_rows
from zoo.training.learning_curves import plot_learning_curves
from zoo.training.run import RunFolder, command_line
from zoo.training.tasks import find_task

PLACES_OF_DATA = ("root", "captions", "test_captions", "test_root")
"""Options of data sets that say where something lies on this machine."""


@rank_zero_only
def announce_run(config: RunConfig, run: RunFolder, data: SplitDataModule, model: nn.Module) -> None:
    """Print what is about to be trained, on what, and where it goes."""
    print(data.describe())
    print(f"{config.title}: {count_parameters(model):,} parameters, {config.trainer['precision']}, seed {config.seed}")
    print(f"Run folder: {run.path}", flush=True)


def finish_run(
    config: RunConfig, run: RunFolder, trainer: Trainer, data: SplitDataModule, model: nn.Module
) -> dict[str, Any]:
    """Test the selected and the last epoch, and write weights, card, result, predictions and curves.

    The selected epoch is the one with the best validation score (the earliest of equals; the last when a run
    bounded by steps never validated), so the test set has no say in it. Both are computed in float32, whatever
    the training's precision, as ``evaluate.py`` does. Its weights are left in ``model`` and in
    ``weights.safetensors``; the figures of the last epoch stand beside it.

    Returns:
        The content of ``result.json``.
    """
    run = RunFolder(trainer.strategy.broadcast(str(run.path)))
    device = trainer.strategy.root_device
    model.to(device, torch.float32)
    task = find_task(config)
    epochs = {"last_epoch": run.last, "selected_epoch": run.best if run.best.exists() else run.last}
    metrics: dict[str, Any] = {}
    for label, checkpoint in epochs.items():
        epoch = _load_weights(model, checkpoint)
        if label == "selected_epoch" and metrics["last_epoch"]["epoch"] == epoch:
            metrics[label] = metrics["last_epoch"]
            continue
        outcome = task.test(model, data, device)
        metrics[label] = {"epoch": epoch, **outcome.metrics}
    rows = next(callback.rows for callback in trainer.checkpoint_callbacks if isinstance(callback, EpochLog))
    if not trainer.is_global_zero:
        return {}
    write_rows(run.predictions, outcome.rows)
    title = f"{config.title} on {config.data['name']}, seed {config.seed}"
    plot_learning_curves(rows, run.curves, title=title, score=task.score)
    card = _save_card(config, run, data, model, metrics, rows, device)
    result = {
        "model": config.title,
        "data": config.data["name"],
        "seed": config.seed,
        "selected_epoch": metrics["selected_epoch"],
        "last_epoch": metrics["last_epoch"],
        "validation": {row["epoch"]: row.get(f"val_{task.score[0]}") for row in rows},
        "cost": card.cost,
        "data_report": data.describe(),
        "precision": str(trainer.precision),
        "hardware": card.hardware,
        "versions": card.versions,
        "commit": card.commit,
        "code_digest": code_digest(),
        "data_digest": data.digest(),
        "command": card.command,
    }
    write_atomically(run.result, json.dumps(result, indent=2) + "\n")
    return result


def _load_weights(model: nn.Module, checkpoint: Path) -> int:
    """Put a checkpoint's weights (averaged ones, if the run averages) into the model; return its epoch from 1."""
    content = torch.load(checkpoint, map_location="cpu", weights_only=True)
    prefix = "model."
    state = {name.removeprefix(prefix): value for name, value in content["state_dict"].items() if prefix in name[:6]}
    model.load_state_dict(state)
    return int(content["epoch"]) + 1


def _save_card(
    config: RunConfig,
    run: RunFolder,
    data: SplitDataModule,
    model: nn.Module,
    metrics: Mapping[str, Any],
    rows: list[dict[str, Any]],
    device: torch.device,
) -> WeightCard:
    speeds = sorted(row["images_per_second"] for row in rows)
    options = {key: value for key, value in config.data.items() if key != "name"}
    data_section = {
        "name": data.name,
        "split": "test",
        "class_names": list(data.output_names()),
        "options": options,
        **{f"num_{split}": data.num_images(split) for split in data.splits},
    }
    save = partial(
        save_weights,
        model,
        preprocessing=data.preprocessing,
        metrics={epoch: {"epoch": values["epoch"], **scalar_metrics(values)} for epoch, values in metrics.items()},
        stored="selected_epoch",
        cost={
            "parameters": count_parameters(model),
            "macs": count_macs(with_fixed_words(model), (data.in_channels, *data.image_size)),
            "train_seconds": round(sum(row["train_seconds"] for row in rows), 1),
            "train_images_per_second": speeds[len(speeds) // 2],
        },
        seed=config.seed,
        hardware=describe_hardware(device),
    )
    card = save(run.card, data=data_section, training=config.to_dict(), command=command_line())
    if config.weights_dir is not None:  # a copy for others, who have other folders
        placeless = {"output_dir": "runs", "run_dir": None, "weights_dir": None}
        training = {**config.to_dict(), **placeless, "data": without_root(config.data)}
        path = Path(config.weights_dir) / f"{config.title}.{data.name}.yaml"
        command = without_places(command_line())
        save(path, data={**data_section, "options": without_root(options)}, training=training, command=command)
    return card


def without_places(command: str) -> str:
    """Return a command of ``train.py`` without the options that say where things lie on this machine.

    >>> without_places("python train.py --seed 1 --run_dir '/home/ada/a b' --data.root=/mnt --weights_dir weights")
    'python train.py --seed 1 --weights_dir weights'
    """
    places = ("--run_dir", "--output_dir", "--overwrite", *(f"--data.{name}" for name in PLACES_OF_DATA))
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        option, equals, _ = word.partition("=")
        if option not in places:
            kept.append(word)
        elif not equals:
            next(words, None)
    return shlex.join(kept)


def without_root(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a data set without the place where it lies on this machine.

    >>> without_root({"root": "/home/ada/images", "image_size": 128})
    {'root': None, 'image_size': 128}
    """
    return {name: None if name in PLACES_OF_DATA else value for name, value in options.items()}


def print_result(config: RunConfig, run: RunFolder, result: Mapping[str, Any]) -> None:
    """Print the run's table, the files it left, and what to try next."""
    console = Console()
    table = Table(title=f"{config.title} on the test set of {config.data['name']} ({_count(result)} images)")
    table.add_column("figure")
    table.add_column("selected epoch (best validation)", justify="right")
    table.add_column("last epoch", justify="right")
    epochs = [result["selected_epoch"], result["last_epoch"]]
    table.add_row("epoch", *(str(values["epoch"]) for values in epochs))
    for name, words in find_task(config).headline.items():
        if name in epochs[0]:
            table.add_row(words, *(_shown(values[name], in_percent=words.endswith("%")) for values in epochs))
    console.print(table)
    cost = result["cost"]
    console.print(
        f"{cost['parameters']:,} parameters, {cost['macs']:,} MACs per image, "
        f"{cost['train_images_per_second']:.0f} training images per second, {cost['train_seconds']:.0f} s of training"
    )
    files = {
        "weights and card": run.card,
        "all figures": run.result,
        "each test image": run.predictions,
        "learning curves": run.curves,
    }
    for what, path in files.items():
        console.print(f"  {what:<17} {path}", soft_wrap=True, highlight=False)
    console.print("Next, all figures and the latency of these weights:")
    console.print(f"  python evaluate.py --weights {run.path}", soft_wrap=True, highlight=False)


def _count(result: Mapping[str, Any]) -> int:
    return int(result["last_epoch"]["num_images"])


def _shown(value: float, *, in_percent: bool) -> str:
    return f"{100 * value:.2f}" if in_percent else f"{value:.4f}"
