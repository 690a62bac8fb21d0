"""The Lightning system that trains any image classifier."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy
from torchvision.transforms import v2

from zoo.config import OptimizationConfig, RunConfig
from zoo.data.data_module import ImageDataModule
from zoo.training.loss import MixedTargetCrossEntropy
from zoo.training.system import TrainingSystem


class ImageClassifier(TrainingSystem):
    """Trains a module that maps images to logits.

    Logged once per epoch: ``train_loss``; ``train_top1`` unless images are mixed, where it would compare mixed
    images with unmixed labels; ``val_loss`` (mean negative log-likelihood in nats, without smoothing or weights)
    and ``val_top1`` over the whole validation set, each image once, whatever the batches and processes.

    Args:
        model: Maps images ``(batch, channels, height, width)`` to logits ``(batch, num_classes)``.
        num_classes: At least 2.
        optimization: Optimizer, schedule, smoothing and mixing.
        class_weights: One weight per class for the training loss; ``None`` for 1 each.
        channels_last: Hand images to the model in channels-last memory order, and keep its weights so.

    Raises:
        ValueError: Fewer than two classes, or another number of class weights.
    """

    score = "top1"

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        optimization: OptimizationConfig | None = None,
        class_weights: Sequence[float] | None = None,
        channels_last: bool = True,
    ) -> None:
        if num_classes < 2:
            raise ValueError(
                f"num_classes ({num_classes}) must be at least 2: with one class there is nothing to learn"
            )
        if class_weights is not None and len(class_weights) != num_classes:
            raise ValueError(f"{len(class_weights)} class weights given for {num_classes} classes")
        super().__init__(model, optimization=optimization, channels_last=channels_last)
        weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.loss = MixedTargetCrossEntropy(weights, self.optimization.label_smoothing)
        self.mix = create_mixing(num_classes, self.optimization.mixup_alpha, self.optimization.cutmix_alpha)
        self.train_loss = MeanMetric(nan_strategy="disable")
        self.train_top1 = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        for metric in (self.train_loss, self.train_top1):
            metric.persistent(True)  # part of a checkpoint in the middle of an epoch
        self.val_loss = MeanMetric(nan_strategy="disable")
        self.val_top1 = MulticlassAccuracy(num_classes, average="micro", validate_args=False)

    @classmethod
    def from_config(cls, model: nn.Module, data: ImageDataModule, config: RunConfig) -> Self:
        """Build the system that a run's config describes, for the classes of its data."""
        class_weights = config.optimization.class_weights
        if class_weights == "balanced":
            counts = data.labels("train").bincount(minlength=data.num_classes).double()
            class_weights = (counts.sum() / (data.num_classes * counts)).tolist()
        if config.compile:
            model.compile()
        return cls(
            model,
            num_classes=data.num_classes,
            optimization=config.optimization,
            class_weights=class_weights,
            channels_last=config.channels_last,
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits ``(batch, num_classes)``."""
        logits: torch.Tensor = self.model(self.prepare_images(images))
        return logits

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG002 (Lightning's signature)
        """Return the loss of one batch of ``(images, labels, ...)``."""
        images, labels = batch[0], batch[1]
        if self.mix is None:
            logits = self(images)
            loss = self.loss(logits, labels)
            self.train_top1.update(logits.detach(), labels)
        else:
            images, soft_labels = self.mix(images, labels)
            loss = self.loss(self(images), soft_labels)
        self.train_loss.update(loss.detach(), weight=len(images))
        return loss

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training figures, and refuse to go on with weights that are no numbers."""
        self.log("train_loss", self.train_loss.compute())
        self.train_loss.reset()
        if self.mix is None:
            self.log("train_top1", self.train_top1.compute())
            self.train_top1.reset()
        self.check_weights()

    def validation_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 (Lightning's signature)
        """Add one batch to the validation figures."""
        images, labels = batch[0], batch[1]
        logits = self(images).float()
        self.val_loss.update(nn.functional.cross_entropy(logits, labels, reduction="none"))
        self.val_top1.update(logits, labels)

    def on_validation_epoch_end(self) -> None:
        """Log the validation figures; a loss that is no number is an error, since its accuracy would look real."""
        loss, top1 = self.val_loss.compute(), self.val_top1.compute()
        self.val_loss.reset()
        self.val_top1.reset()
        if not loss.isfinite():
            raise FloatingPointError(f"the validation loss is {loss.item()}: the logits are NaN or infinite")
        self.log("val_loss", loss, prog_bar=True)
        self.log("val_top1", top1, prog_bar=True)


def create_mixing(num_classes: int, mixup_alpha: float, cutmix_alpha: float) -> nn.Module | None:
    """Build torchvision's mixup, cutmix or a fair coin between both; ``None`` when both alphas are 0.

    An image is mixed with its neighbour in the batch, so a batch of one stays itself; label rows sum to 1.
    """
    transforms: list[nn.Module] = []
    if mixup_alpha > 0:
        transforms.append(v2.MixUp(alpha=mixup_alpha, num_classes=num_classes))
    if cutmix_alpha > 0:
        transforms.append(v2.CutMix(alpha=cutmix_alpha, num_classes=num_classes))
    if not transforms:
        return None
    return v2.RandomChoice(transforms) if len(transforms) > 1 else transforms[0]
