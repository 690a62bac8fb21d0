"""What all Lightning systems of the zoo share: memory order, optimizer and schedule, and a look at the weights."""

from typing import ClassVar

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from zoo.config import OptimizationConfig
from zoo.training.optimization import create_optimizer, warmup_cosine


class TrainingSystem(LightningModule):
    """Trains a module on images.

    Args:
        model: What is trained.
        optimization: Optimizer and schedule.
        channels_last: Hand images to the model in channels-last memory order, and keep its weights so.
    """

    score: ClassVar[str]
    """The figure, logged as ``val_SCORE``, whose highest value selects the epoch."""

    def __init__(
        self, model: nn.Module, *, optimization: OptimizationConfig | None = None, channels_last: bool = True
    ) -> None:
        super().__init__()
        self.optimization = optimization or OptimizationConfig()
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.model = model.to(memory_format=self.memory_format)

    def check_weights(self) -> None:
        """Raise FloatingPointError rather than go on with weights that are no numbers."""
        broken = [name for name, value in self.model.state_dict().items() if not value.isfinite().all()]
        if broken:
            raise FloatingPointError(f"{len(broken)} weights are NaN or infinite after the epoch, first {broken[0]}")

    def prepare_images(self, images: torch.Tensor) -> torch.Tensor:
        """Return images in the memory order and the precision of the model's weights."""
        dtype = next(self.model.parameters()).dtype  # half precision when the trainer's is 16-true or bf16-true
        return images.to(dtype=dtype, memory_format=self.memory_format)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the optimizer and a schedule counted in optimizer steps, right under gradient accumulation."""
        optimizer = create_optimizer(self.model, self.optimization)
        num_steps = int(self.trainer.estimated_stepping_batches)
        warmup_steps = self._count_warmup_steps(num_steps)

        def fraction_at(step: int) -> float:
            final_fraction = self.optimization.final_lr_fraction
            return warmup_cosine(step, num_steps=num_steps, warmup_steps=warmup_steps, final_fraction=final_fraction)

        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, fraction_at), "interval": "step"},
        }

    def _count_warmup_steps(self, num_steps: int) -> int:
        max_epochs = self.trainer.max_epochs or -1
        if max_epochs < 1:  # a run bounded by max_steps alone: an epoch is no part of it
            return num_steps // 20
        warmup_epochs = self.optimization.warmup_epochs
        if warmup_epochs is None:
            warmup_epochs = min(1.0, max_epochs / 5)
        if warmup_epochs >= max_epochs:
            raise ValueError(
                f"optimization.warmup_epochs ({warmup_epochs}) must be below trainer.max_epochs ({max_epochs})"
            )
        return round(warmup_epochs * num_steps / max_epochs)
