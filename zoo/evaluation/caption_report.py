"""All figures of one captioner on one split of captioned images: measured, compared with the card, printed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zoo.data.caption_module import CaptionDataModule
from zoo.data.split_module import Split
from zoo.evaluation.captions import (
    BEAM_WIDTH,
    WrittenCaption,
    compute_caption_metrics,
    match_references,
    predict_captions,
)
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.evaluation.latency import measure_latency, measure_peak_memory
from zoo.evaluation.predictions import Precision
from zoo.evaluation.report import compare_with_claim, describe_claim, format_size
from zoo.models.captioner import Captioner, FixedCaption, FreeCaption
from zoo.pretrained import WeightCard
from zoo.provenance import describe_commit, describe_hardware, describe_versions

MAX_MISTAKES = 10


def evaluate_captioner(
    model: Captioner,
    card: WeightCard,
    data: CaptionDataModule,
    *,
    data_name: str,
    split: Split,
    data_options: dict[str, Any],
    device: torch.device,
    precision: Precision,
    latency_batch_sizes: Sequence[int],
) -> dict[str, Any]:
    """Measure everything and return it as plain values, ready for JSON.

    The images are prepared as the card says, whatever the data module would do by itself. Latency and memory are those
    of writing the likeliest word each time; the MACs those of reading a caption of the greatest length.

    Raises:
        ValueError: The data have no such split or give images of another size, or the model gives NaN.
    """
    data.preprocessing = type(data.preprocessing).from_dict(card.preprocessing)
    data.setup()
    try:
        _check_size(data, split, card)
        written = predict_captions(model, data, split, device=device, precision=precision)
    finally:
        data.teardown()
    references = data.references(split)
    metrics = compute_caption_metrics(written, references)
    held_out = split == "held_out"
    claim = compare_with_claim(
        card,
        metrics["exact_match"],
        data_name,
        card.data["split"] if held_out else split,
        data_options,
        figure="held_out_exact_match" if held_out else "exact_match",
    )
    writing, input_size = FreeCaption(model), card.input_size
    memory = partial(measure_peak_memory, writing, input_size, device=device)
    latency = measure_latency(writing, input_size, batch_sizes=latency_batch_sizes, device=device)
    return {
        "weights": card.name,
        "sha256": card.tensors["sha256"],
        "model": card.model,
        "data": {"name": data_name, "split": split, "options": data_options, "description": data.describe()},
        "precision": precision,
        "metrics": metrics,
        "mistakes": _mistakes(written, references, data.sample_names(split)),
        "claim": claim,
        "cost": {
            "parameters": count_parameters(model),
            "macs": count_macs(FixedCaption(model), input_size),
            "input_size": list(input_size),
            "latency": [timing._asdict() for timing in latency],
            "peak_memory_mib": {str(size): memory(batch_size=size) for size in latency_batch_sizes},
        },
        "versions": describe_versions(),
        "hardware": describe_hardware(device),
        "commit": describe_commit(),
    }


def _check_size(data: CaptionDataModule, split: Split, card: WeightCard) -> None:
    found = tuple(next(iter(data.create_loader(split))).images.shape[1:])
    if found != card.input_size:
        raise ValueError(
            f"{data.name} gives images of {format_size(found)}, but the weights {card.name!r} were trained on "
            f"{format_size(card.input_size)}"
        )


def _mistakes(
    written: Sequence[WrittenCaption], references: Sequence[Sequence[Sequence[str]]], names: Sequence[str]
) -> list[dict[str, str]]:
    wrong = [caption for caption in written if not match_references(caption.greedy, references[caption.image])]
    return [
        {
            "image": names[caption.image],
            "reference": " ".join(references[caption.image][0]),
            "caption": " ".join(caption.greedy),
        }
        for caption in wrong[:MAX_MISTAKES]
    ]


def print_caption_report(report: dict[str, Any], console: Console) -> None:
    """Print the figures as tables, shares in percent, and the first captions that are no reference."""
    console.print(report["data"]["description"], highlight=False, markup=False, soft_wrap=True)
    metrics, cost = report["metrics"], report["cost"]
    title = f"{report['weights']} on {report['data']['name']}, {report['data']['split']}"
    table = Table("figure", "value", title=title)
    table.add_row("images", f"{metrics['num_images']:,}")
    shares = {
        "exact_match": "exact match, likeliest word each time",
        "exact_match_beam": f"exact match, beam of {BEAM_WIDTH}",
        "bleu": "BLEU, up to four words",
        "token_accuracy": "words right under teacher forcing",
        "grounding": "attention of words inside the boxes of what they speak of",
        "grounding_chance": "the same of an even gaze",
    }
    for name, words in shares.items():
        if name in metrics:
            table.add_row(words, f"{100 * metrics[name]:.2f} %")
    table.add_row("negative log-likelihood per word, nats", f"{metrics['nll']:.4f}")
    table.add_section()
    table.add_row("parameters", f"{cost['parameters']:,}")
    table.add_row(f"MACs, image of {' x '.join(map(str, cost['input_size']))}", f"{cost['macs']:,}")
    for timing in cost["latency"]:
        table.add_row(f"writing, batch {timing['batch_size']} ({timing['device']})", f"{timing['median_ms']:.2f} ms")
    for batch_size, memory in cost["peak_memory_mib"].items():
        table.add_row(f"peak memory, batch {batch_size}", f"{memory:.1f} MiB")
    console.print(table)
    if report["mistakes"]:
        mistakes = Table("image", "reference", "written", title="the first captions that are no reference")
        for mistake in report["mistakes"]:
            mistakes.add_row(*(escape(mistake[part]) for part in ("image", "reference", "caption")))
        console.print(mistakes)
    claim = describe_claim(report["claim"], figure="exact match")
    console.print(claim, highlight=False, markup=False, soft_wrap=True)
