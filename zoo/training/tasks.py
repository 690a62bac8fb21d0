"""What a run is about: classes or captions. Here, and nowhere else in training, the two part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import zoo
from zoo.config import RunConfig
from zoo.evaluation.captions import BEAM_WIDTH
from zoo.registry import CAPTIONERS
from zoo.training.captioner_system import CaptionerSystem
from zoo.training.final_test import Outcome, measure_captioner, measure_classifier
from zoo.training.image_classifier import ImageClassifier
from zoo.training.system import TrainingSystem


@dataclass(frozen=True)
class Task:
    """How the runs of one kind differ from others.

    Args:
        create_model: From a config and its data.
        create_system: From a model, its data and a config.
        test: Measures a model on the test images of its data, on a device.
        score: The figure that selects the epoch, by name and in words.
        headline: The figures of the table at the end, by name and in words; shares are printed in percent.
    """

    create_model: Callable[[RunConfig, Any], nn.Module]
    create_system: Callable[[Any, Any, RunConfig], TrainingSystem]
    test: Callable[[Any, Any, torch.device], Outcome]
    score: tuple[str, str]
    headline: dict[str, str]


def create_classifier(config: RunConfig, data: Any) -> nn.Module:
    """Create the network of a run, for the classes and channels of its data."""
    return zoo.create_model(**config.model, num_classes=data.num_classes, in_channels=data.in_channels)


def create_captioner(config: RunConfig, data: Any) -> nn.Module:
    """Create the captioner of a run, for the words and channels of its data."""
    return zoo.create_captioner(
        **config.model, num_classes=data.num_classes, in_channels=data.in_channels, max_words=data.max_words
    )


CLASSIFICATION = Task(
    create_model=create_classifier,
    create_system=ImageClassifier.from_config,
    test=measure_classifier,
    score=(ImageClassifier.score, "top-1 accuracy"),
    headline={"top1": "top-1 %", "macro_accuracy": "macro %", "nll": "NLL", "ece": "ECE"},
)
CAPTIONING = Task(
    create_model=create_captioner,
    create_system=lambda model, _, config: CaptionerSystem.from_config(model, config),
    test=measure_captioner,
    score=(CaptionerSystem.score, "exact match"),
    headline={
        "exact_match": "exact match %",
        "exact_match_beam": f"exact match, beam of {BEAM_WIDTH} %",
        "bleu": "BLEU %",
        "token_accuracy": "words right under teacher forcing %",
        "nll": "NLL per word",
        "grounding": "attention inside the boxes %",
        "grounding_chance": "of an even gaze %",
        "held_out_exact_match": "held-out combinations: exact match %",
        "held_out_bleu": "held-out combinations: BLEU %",
    },
)


def find_task(config: RunConfig) -> Task:
    """Return what a run is about."""
    return CAPTIONING if config.model["name"] in CAPTIONERS else CLASSIFICATION
