"""The test at the end of a run: all figures of the test images, and a row for each of them."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from zoo.data.caption_module import CaptionDataModule
from zoo.data.data_module import ImageDataModule
from zoo.data.split_module import Split
from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.captions import compute_caption_metrics, match_references, predict_captions
from zoo.evaluation.predictions import Predictions, predict_dataset
from zoo.models.captioner import Captioner


class Outcome(NamedTuple):
    """What the test showed.

    Attributes:
        metrics: The figures; those that are numbers go onto the card.
        rows: One mapping per image, for ``test_predictions.csv``.
    """

    metrics: dict[str, Any]
    rows: list[dict[str, Any]]


def measure_classifier(model: nn.Module, data: ImageDataModule, device: torch.device) -> Outcome:
    """Classify the test images."""
    prepare = partial(data.prepare_batch, training=False)
    predictions = predict_dataset(model, data.test_dataloader(), prepare, device=device)
    return Outcome(compute_metrics(predictions, data.class_names), _classifier_rows(predictions, data))


def measure_captioner(model: Captioner, data: CaptionDataModule, device: torch.device) -> Outcome:
    """Let the captioner write about the test images, and about those with held-out combinations where there are any."""
    metrics, rows = _test_split(model, data, "test", device)
    if "held_out" in data.splits:
        held_out, more = _test_split(model, data, "held_out", device)
        metrics |= {f"held_out_{name}": value for name, value in held_out.items()}
        rows += more
    return Outcome(metrics, rows)


def _test_split(
    model: Captioner, data: CaptionDataModule, split: Split, device: torch.device
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    written = predict_captions(model, data, split, device=device)
    references = data.references(split)
    names = data.sample_names(split)
    rows = [
        {
            "image": names[caption.image],
            "reference": " ".join(references[caption.image][0]),
            "caption": " ".join(caption.greedy),
            "correct": int(match_references(caption.greedy, references[caption.image])),
            "beam": " ".join(caption.beam),
            "nats": f"{caption.nats:.6f}",
        }
        for caption in written
    ]
    return compute_caption_metrics(written, references), rows


def _classifier_rows(predictions: Predictions, data: ImageDataModule) -> list[dict[str, Any]]:
    """Say of every test image what it is, what the model answered, and how sure it was."""
    names = data.sample_names("test")
    probabilities, answers = predictions.logits.softmax(dim=1).max(dim=1)
    return [
        {
            "image": names[index],
            "label": data.class_names[target],
            "prediction": data.class_names[answer],
            "correct": int(target == answer),
            "probability": f"{probability:.6f}",
        }
        for index, target, answer, probability in zip(
            predictions.indices.tolist(),
            predictions.targets.tolist(),
            answers.tolist(),
            probabilities.tolist(),
            strict=True,
        )
    ]
