"""Test accuracy during training, for studies that choose nothing by it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from zoo.data.data_module import ImageDataModule
from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.predictions import predict_dataset


class AccuracyByEpoch(Callback):
    """Tests the network after chosen epochs, in float32 and not compiled; 0 stands for before the first step.

    Nothing is chosen by what it finds, so the test set may be used each time. What it found is part of the checkpoint.

    Args:
        data: The data.
        epochs: Numbers of completed epochs.
    """

    def __init__(self, data: ImageDataModule, epochs: Sequence[int]) -> None:
        self.data = data
        self.epochs = epochs
        self.top1: dict[int, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Test the network as it is before the first step."""
        if trainer.global_step == 0:
            self._test(0, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Test the network after an epoch."""
        self._test(trainer.current_epoch + 1, pl_module)

    def _test(self, epoch: int, pl_module: LightningModule) -> None:
        if epoch in self.epochs and epoch not in self.top1:
            assert isinstance(pl_module.model, nn.Module)
            prepare = partial(self.data.prepare_batch, training=False)
            loader = self.data.create_loader("test")
            with torch.compiler.set_stance("force_eager"):
                predictions = predict_dataset(pl_module.model, loader, prepare, device=pl_module.device)
            self.top1[epoch] = compute_metrics(predictions, self.data.class_names)["top1"]

    def state_dict(self) -> dict[str, Any]:
        """Return what was found so far."""
        return {"top1": dict(self.top1)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what was found before the run was interrupted."""
        self.top1 = dict(state_dict["top1"])
