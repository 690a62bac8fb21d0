"""All figures of one set of weights on one data set: measured, compared with the card, printed."""

import inspect
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from zoo.data import data_registry
from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.evaluation.latency import measure_latency, measure_peak_memory
from zoo.evaluation.predictions import Precision, predict_dataset
from zoo.pretrained import WeightCard
from zoo.provenance import describe_commit, describe_hardware, describe_versions

if TYPE_CHECKING:
    from zoo.data.data_module import ImageDataModule, Split

CLAIM_TOLERANCE = 0.002
"""Largest difference of top-1 from the card's, as a fraction: another precision moves an image in a thousand or two."""

# Options of a data module that do not decide which test images there are.
NEUTRAL_DATA_OPTIONS = frozenset(
    {"root", "captions", "test_captions", "test_root", "download", "batch_size", "eval_batch_size", "num_workers"}
)
MAX_CLASS_ROWS = 20


def evaluate_weights(
    model: nn.Module,
    card: WeightCard,
    data: "ImageDataModule",
    *,
    data_name: str,
    split: "Split",
    data_options: dict[str, Any],
    device: torch.device,
    precision: Precision,
    latency_batch_sizes: Sequence[int],
) -> dict[str, Any]:
    """Measure everything and return it as plain values, ready for JSON.

    The images are prepared as the card says, whatever the data module would do by itself.

    Raises:
        ValueError: The images do not have the size the weights need, or the model gives NaN.
    """
    data.preprocessing = type(data.preprocessing).from_dict(card.preprocessing)
    data.setup()
    prepare = partial(_prepare_checked, data=data, card=card)
    try:
        predictions = predict_dataset(model, data.create_loader(split), prepare, device=device, precision=precision)
    finally:
        data.teardown()
    metrics = compute_metrics(predictions, card.class_names)
    latency = measure_latency(model, card.input_size, batch_sizes=latency_batch_sizes, device=device)
    return {
        "weights": card.name,
        "sha256": card.tensors["sha256"],
        "model": card.model,
        "data": {"name": data_name, "split": split, "options": data_options, "description": data.describe()},
        "precision": precision,
        "metrics": metrics,
        "claim": compare_with_claim(card, metrics["top1"], data_name, split, data_options),
        "cost": {
            "parameters": count_parameters(model),
            "macs": count_macs(model, card.input_size),
            "input_size": list(card.input_size),
            "latency": [timing._asdict() for timing in latency],
            "peak_memory_mib": {
                str(size): measure_peak_memory(model, card.input_size, batch_size=size, device=device)
                for size in latency_batch_sizes
            },
        },
        "versions": describe_versions(),
        "hardware": describe_hardware(device),
        "commit": describe_commit(),
    }


def _prepare_checked(batch: Any, *, data: "ImageDataModule", card: WeightCard) -> Any:
    prepared = data.prepare_batch(batch, training=False)
    found, needed = tuple(prepared.images.shape[1:]), card.input_size
    if found != needed:
        raise ValueError(
            f"{data.name} gives images of {format_size(found)}, but the weights {card.name!r} were trained on "
            f"{format_size(needed)}"
        )
    return prepared


def format_size(input_size: tuple[int, ...]) -> str:
    """Say what an image has, in words."""
    return "{} channels, {} x {} pixels".format(*input_size)


def compare_with_claim(
    card: WeightCard,
    measured: float,
    data_name: str,
    split: str,
    data_options: dict[str, Any],
    *,
    figure: str = "top1",
) -> dict[str, Any]:
    """Hold a measured figure against the card's, where both are about the same images.

    Returns:
        ``measured``, and either ``claimed``, ``difference`` and ``agrees``, or the ``reason`` why none is possible.
    """
    reason = None
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(data_registry(data_name)[data_name]).parameters.items()
    }
    claimed_options = {**defaults, **card.data.get("options", {})}
    differing = [
        name
        for name, value in data_options.items()
        if name not in NEUTRAL_DATA_OPTIONS and value != claimed_options.get(name)
    ]
    if (data_name, split) != (card.data["name"], card.data["split"]):
        reason = f"the card is about {card.data['name']}, {card.data['split']}"
    elif differing:
        reason = f"the card is about other options of {data_name}: {', '.join(differing)}"
    elif figure not in card.claim:
        reason = f"the card has no {figure}"
    if reason:
        return {"measured": measured, "reason": reason}
    difference = measured - card.claim[figure]
    return {
        "measured": measured,
        "claimed": card.claim[figure],
        "epoch": card.metrics["stored"],
        "difference": difference,
        "agrees": abs(difference) <= CLAIM_TOLERANCE,
    }


def describe_claim(claim: dict[str, Any], figure: str = "top-1") -> str:
    """Say in a sentence what :func:`compare_with_claim` found about a figure, given in words."""
    measured = f"Measured {_percent(claim['measured'])} {figure}"
    if "reason" in claim:
        return f"{measured}; nothing on the card to compare it with: {claim['reason']}."
    epoch = claim["epoch"].replace("_", " ")
    if claim["difference"] == 0:
        return f"{measured}: exactly what the card says of the {epoch}."
    verdict = "agrees with" if claim["agrees"] else "DOES NOT AGREE with"
    points = f"{100 * claim['difference']:+.2f} points"
    return f"{measured}: {verdict} the card's {_percent(claim['claimed'])} of the {epoch} ({points})."


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print the figures as tables, accuracies in percent."""
    console.print(report["data"]["description"], highlight=False, markup=False, soft_wrap=True)
    console.print(_summary_table(report), _class_table(report["metrics"]))
    console.print(describe_claim(report["claim"]), highlight=False, markup=False, soft_wrap=True)


def _summary_table(report: dict[str, Any]) -> Table:
    metrics, cost = report["metrics"], report["cost"]
    table = Table(
        "figure", "value", title=f"{report['weights']} on {report['data']['name']}, {report['data']['split']}"
    )
    table.add_row("images", f"{metrics['num_images']:,}")
    table.add_row("top-1 (micro, over images)", _percent(metrics["top1"]))
    if "top5" in metrics:
        table.add_row("top-5", _percent(metrics["top5"]))
    table.add_row("top-1 (macro, over classes that occur)", _percent(metrics["macro_accuracy"]))
    table.add_row("negative log-likelihood, nats", f"{metrics['nll']:.4f}")
    table.add_row("expected calibration error", _percent(metrics["ece"]))
    table.add_section()
    table.add_row("parameters", f"{cost['parameters']:,}")
    table.add_row(f"MACs, image of {' x '.join(map(str, cost['input_size']))}", f"{cost['macs']:,}")
    for timing in cost["latency"]:
        device = (
            f"{timing['device']}, threads: {timing['num_threads']}" if timing["device"] == "cpu" else timing["device"]
        )
        spread = f"quartiles {timing['lower_quartile_ms']:.2f} to {timing['upper_quartile_ms']:.2f}"
        table.add_row(f"latency, batch {timing['batch_size']} ({device})", f"{timing['median_ms']:.2f} ms ({spread})")
    for batch_size, memory in cost["peak_memory_mib"].items():
        table.add_row(f"peak memory, batch {batch_size}", f"{memory:.1f} MiB")
    return table


def _class_table(metrics: dict[str, Any]) -> Table:
    """List every class, or the lowest ones where there are many."""
    names = list(metrics["per_class"])
    title = "accuracy per class"
    if len(names) > MAX_CLASS_ROWS:
        occurring = [name for name in names if metrics["per_class"][name] is not None]
        title = f"the {MAX_CLASS_ROWS} classes of {len(names)} with the lowest accuracy"
        names = sorted(occurring, key=lambda name: metrics["per_class"][name])[:MAX_CLASS_ROWS]
    table = Table("class", "images", "accuracy", title=title)
    for name in names:
        accuracy = metrics["per_class"][name]
        shown = "n/a" if accuracy is None else _percent(accuracy)
        table.add_row(escape(name), f"{metrics['num_per_class'][name]:,}", shown)
    return table


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"
