"""The Lightning system that trains captioners: word by word under teacher forcing, judged on what they write alone."""

from typing import Self

import torch
from torch import nn
from torchmetrics import MeanMetric
from typing_extensions import override

from zoo.config import OptimizationConfig, RunConfig
from zoo.data.caption_module import CaptionBatch, CaptionDataModule
from zoo.evaluation.captions import match_references
from zoo.models.caption_words import PAD
from zoo.models.captioner import Captioner
from zoo.training.system import TrainingSystem

_WITHOUT_EFFECT = ("mixup_alpha", "cutmix_alpha", "class_weights")
"""Options of :class:`OptimizationConfig` that concern labels, which captions are not."""


class CaptionerSystem(TrainingSystem):
    """Trains a captioner on the words of captions, each predicted from the true ones before it ("teacher forcing").

    Logged once per epoch: ``train_loss`` (with smoothing, nats per word) and ``train_token_accuracy``; over the whole
    validation set ``val_loss`` (nats per word, without smoothing) and ``val_token_accuracy`` under teacher forcing, and
    ``val_exact_match``, the share of images whose caption, written freely from the first word to the last, is one of
    the references. The end counts as a word, filling does not.

    Args:
        model: The captioner.
        optimization: Optimizer, schedule and smoothing.
        channels_last: Hand images to the model in channels-last memory order, and keep its weights so.

    Raises:
        ValueError: An option of the optimization would have no effect.
    """

    score = "exact_match"
    model: Captioner

    def __init__(
        self, model: Captioner, *, optimization: OptimizationConfig | None = None, channels_last: bool = True
    ) -> None:
        super().__init__(model, optimization=optimization, channels_last=channels_last)
        for option in _WITHOUT_EFFECT:
            value = getattr(self.optimization, option)
            if value:
                raise ValueError(f"optimization.{option} ({value}) has no effect on a captioner; leave it out")
        self.loss = nn.CrossEntropyLoss(
            ignore_index=PAD, reduction="sum", label_smoothing=self.optimization.label_smoothing
        )
        self.train_loss = MeanMetric(nan_strategy="disable")
        self.train_token_accuracy = MeanMetric(nan_strategy="disable")
        for metric in (self.train_loss, self.train_token_accuracy):
            metric.persistent(True)  # part of a checkpoint in the middle of an epoch
        self.val_loss = MeanMetric(nan_strategy="disable")
        self.val_token_accuracy = MeanMetric(nan_strategy="disable")
        self.val_exact_match = MeanMetric(nan_strategy="disable")

    @classmethod
    def from_config(cls, model: Captioner, config: RunConfig) -> Self:
        """Build the system that a run's config describes."""
        if config.compile:
            model.encoder.compile()
            model.decoder.compile()
        return cls(model, optimization=config.optimization, channels_last=config.channels_last)

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return the logits of the word behind each of ``words``, (batch, steps, num_words)."""
        logits: torch.Tensor = self.model(self.prepare_images(images), words)
        return logits

    def training_step(self, batch: CaptionBatch, batch_idx: int) -> torch.Tensor:  # noqa: ARG002
        """Return the mean loss of a batch's words."""
        logits, targets = self(batch.images, batch.words[:, :-1]).float(), batch.words[:, 1:]
        num_words = (targets != PAD).sum()
        loss: torch.Tensor = self.loss(logits.flatten(0, 1), targets.flatten()) / num_words
        self.train_loss.update(loss.detach(), weight=num_words)
        self.train_token_accuracy.update(_share_right(logits.detach(), targets), weight=num_words)
        return loss

    @override
    def on_train_epoch_end(self) -> None:
        """Log the epoch's training figures, and refuse to go on with weights that are no numbers."""
        for name in ("train_loss", "train_token_accuracy"):
            metric = getattr(self, name)
            self.log(name, metric.compute())
            metric.reset()
        self.check_weights()

    def validation_step(self, batch: CaptionBatch, batch_idx: int) -> None:  # noqa: ARG002
        """Add one batch to the validation figures."""
        images, targets = self.prepare_images(batch.images), batch.words[:, 1:]
        logits = self.model(images, batch.words[:, :-1]).float()
        num_words = (targets != PAD).sum()
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        self.val_loss.update(nats, weight=num_words)
        self.val_token_accuracy.update(_share_right(logits, targets), weight=num_words)
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, CaptionDataModule)
        written = [data.vocabulary.decode(words) for words in self.model.write(images).words.tolist()]
        references = data.references("val")
        for index, words in zip(batch.indices.tolist(), written, strict=True):
            self.val_exact_match.update(float(match_references(words, references[index])))

    def on_validation_epoch_end(self) -> None:
        """Log the validation figures; a loss that is no number is an error, since its accuracy would look real."""
        for name in ("val_loss", "val_token_accuracy", "val_exact_match"):
            metric = getattr(self, name)
            value = metric.compute()
            metric.reset()
            if not value.isfinite():
                raise FloatingPointError(f"{name} is {value.item()}: the logits are NaN or infinite")
            self.log(name, value, prog_bar=True)


def _share_right(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of words, filling aside, that are the likeliest of (batch, steps, num_words) logits."""
    exists = targets != PAD
    return ((logits.argmax(-1) == targets) & exists).sum() / exists.sum()
