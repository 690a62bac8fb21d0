"""What a captioner writes for every image of a split, how good that is, and whether it looks at what it names."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.text import bleu_score

from zoo.data.caption_module import CaptionBatch, CaptionDataModule, WordRegions
from zoo.data.split_module import Split
from zoo.evaluation.predictions import AUTOCAST_DTYPES, Precision, evaluation_mode
from zoo.models.caption_words import PAD
from zoo.models.captioner import Captioner

BEAM_WIDTH = 4


class WrittenCaption(NamedTuple):
    """One image: what was written, and how the reference fared.

    Attributes:
        image: Position in the split.
        greedy: Words written with the likeliest word each time.
        beam: Words written with a beam of ``BEAM_WIDTH``.
        nats: Negative log-likelihood of the first reference and its end under teacher forcing.
        num_words: Words of the first reference, the end counted.
        num_right: How many of them are the likeliest after the true words before them.
        shares: For each word of the first reference that speaks of things: the attention inside their boxes.
        chances: What an even gaze would give: the share of the image that the boxes cover.
    """

    image: int
    greedy: list[str]
    beam: list[str]
    nats: float
    num_words: int
    num_right: int
    shares: list[float]
    chances: list[float]


def match_references(words: Sequence[str], references: Sequence[Sequence[str]]) -> bool:
    """Return whether words are one of the references.

    >>> match_references(["a", "ring"], [["the", "ring"], ["a", "ring"]])
    True
    """
    return any(list(words) == list(reference) for reference in references)


def share_in_regions(attention: Tensor, regions: WordRegions) -> tuple[Tensor, Tensor]:
    """Return how much of the attention of each word lies inside the boxes of what it speaks of, and the boxes' area.

    A cell of the map counts with the part of it that boxes cover, so even attention gives exactly the area.

    Args:
        attention: (batch, words, rows, columns); each map sums to 1.
        regions: Boxes and words of these images.

    Returns:
        Two tensors (batch, words), shares from 0 to 1; both are 0 for words that speak of nothing.

    >>> regions = WordRegions(torch.tensor([[[0.5, 0.0, 1.0, 1.0]]]), torch.ones(1, 1, 1, dtype=torch.bool))
    >>> share_in_regions(torch.tensor([[[[0.25, 0.75]]]]), regions)
    (tensor([[0.7500]]), tensor([[0.5000]]))
    """
    rows, columns = attention.shape[2:]
    across = _covered(regions.boxes[..., 0], regions.boxes[..., 2], columns)
    down = _covered(regions.boxes[..., 1], regions.boxes[..., 3], rows)
    inside = torch.einsum("bwo,bor,boc->bwrc", regions.speaks_of.to(down.dtype), down, across)
    return (attention * inside).sum((2, 3)), inside.mean((2, 3))


def _covered(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Return the part of each of ``count`` cells between two fractions of the way: (batch, objects, count)."""
    edges = torch.arange(count + 1, dtype=first.dtype, device=first.device) / count
    overlap = torch.minimum(last[..., None], edges[1:]) - torch.maximum(first[..., None], edges[:-1])
    return overlap.clamp_min(0) * count


def predict_captions(
    model: Captioner,
    data: CaptionDataModule,
    split: Split,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "fp32",
) -> list[WrittenCaption]:
    """Let a captioner write in evaluation mode, and return a row for every image of a split, in its order.

    Args:
        model: The captioner, already on ``device``.
        data: Where the images come from.
        split: Which of them.
        device: Where the network runs.
        precision: ``"fp32"``, or the dtype autocast computes in.

    Returns:
        The rows, gathered over all processes when torch.distributed is initialised.
    """
    device = torch.device(device)
    regions = data.regions(split)
    rows: list[WrittenCaption] = []
    with evaluation_mode(model), torch.inference_mode():
        for batch in data.create_loader(split):
            moved = batch._replace(**{name: part.to(device) for name, part in batch._asdict().items()})
            prepared = data.prepare_batch(moved, training=False)
            autocast = torch.autocast(device.type, AUTOCAST_DTYPES[precision]) if precision != "fp32" else nullcontext()
            with autocast:
                rows += _caption_batch(model, data, prepared, regions)
    if dist.is_available() and dist.is_initialized():
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, rows)
        rows = [row for part in parts for row in part]
    return sorted(rows)


def _caption_batch(
    model: Captioner, data: CaptionDataModule, batch: CaptionBatch, regions: WordRegions | None
) -> list[WrittenCaption]:
    targets = batch.words[:, 1:]
    logits = model(batch.images, batch.words[:, :-1]).float()
    if not logits.isfinite().all():
        raise ValueError("the logits are NaN or infinite: the model is broken, so there is no caption to report")
    exists = targets != PAD
    nats = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="none")
    right = (logits.argmax(-1) == targets) & exists
    greedy = model.write(batch.images).words.tolist()
    beam = model.write(batch.images, beam_width=BEAM_WIDTH).words.tolist()
    nats_of_image = nats.view_as(targets).sum(1).tolist()
    num_words, num_right = exists.sum(1).tolist(), right.sum(1).tolist()
    shares, chances = _ground(model, batch, regions)
    decode = data.vocabulary.decode
    return [
        WrittenCaption(
            image=image,
            greedy=decode(greedy[row]),
            beam=decode(beam[row]),
            nats=nats_of_image[row],
            num_words=num_words[row],
            num_right=num_right[row],
            shares=shares[row],
            chances=chances[row],
        )
        for row, image in enumerate(batch.indices.tolist())
    ]


def _ground(
    model: Captioner, batch: CaptionBatch, regions: WordRegions | None
) -> tuple[list[list[float]], list[list[float]]]:
    if regions is None:
        return [[] for _ in batch.indices], [[] for _ in batch.indices]
    indices = batch.indices.cpu()
    own = WordRegions(regions.boxes[indices], regions.speaks_of[indices])
    num_words = own.speaks_of.shape[1]
    attention = model.word_attention(batch.images, batch.words[:, :num_words]).float().cpu()
    share, chance = share_in_regions(attention, own)
    speaks = own.speaks_of.any(2)
    return [s[m].tolist() for s, m in zip(share, speaks, strict=True)], [
        c[m].tolist() for c, m in zip(chance, speaks, strict=True)
    ]


def compute_caption_metrics(
    rows: Sequence[WrittenCaption], references: Sequence[Sequence[Sequence[str]]]
) -> dict[str, Any]:
    """Compute every figure a report shows, as plain numbers; shares are fractions.

    Args:
        rows: What was written, in the order of the split.
        references: The captions of every image, as words.

    Returns:
        ``num_images``; ``exact_match``, the share of images whose greedy caption is one of the references, and
        ``exact_match_beam``; ``bleu`` of the greedy captions, up to four words; under teacher forcing with the first
        reference ``token_accuracy`` and ``nll`` (nats per word, the end counted); and where boxes are known
        ``grounding``, the share of the attention of a word inside the boxes of what it speaks of, mean over words, and
        ``grounding_chance``, what an even gaze would give.

    Raises:
        ValueError: There is no row, or one for each image is not given.
    """
    if not rows or len(rows) != len(references):
        raise ValueError(f"{len(rows)} captions are given for {len(references)} images; there must be one for each")
    num_words = sum(row.num_words for row in rows)
    matched = {
        name: sum(match_references(words, each) for words, each in zip(written, references, strict=True)) / len(rows)
        for name, written in (
            ("exact_match", [row.greedy for row in rows]),
            ("exact_match_beam", [row.beam for row in rows]),
        )
    }
    texts = [[" ".join(reference) for reference in each] for each in references]
    metrics: dict[str, Any] = {
        "num_images": len(rows),
        **matched,
        "bleu": float(bleu_score([" ".join(row.greedy) for row in rows], texts)),
        "token_accuracy": sum(row.num_right for row in rows) / num_words,
        "nll": sum(row.nats for row in rows) / num_words,
    }
    shares = [share for row in rows for share in row.shares]
    if shares:
        metrics["grounding"] = sum(shares) / len(shares)
        metrics["grounding_chance"] = sum(chance for row in rows for chance in row.chances) / len(shares)
    return metrics
