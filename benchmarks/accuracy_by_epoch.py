"""Test accuracy during training, for studies that choose nothing by it."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import nn

import zoo
from zoo.config import RunConfig
from zoo.data.data_module import ImageDataModule
from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.predictions import predict_dataset
from zoo.training.image_classifier import ImageClassifier
from zoo.training.run import RunFolder, create_trainer, start_run


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


def train_and_test(
    config: RunConfig, create_model: Callable[[ImageDataModule], nn.Module], epochs: Sequence[int]
) -> dict[int, float]:
    """Train in the config's run folder, or go on where that was interrupted; return test top-1 after chosen epochs.

    Args:
        config: The run, whose ``run_dir`` is given.
        create_model: Makes the network once data and random numbers stand.
        epochs: Numbers of completed epochs.
    """
    assert config.run_dir is not None
    run = RunFolder(Path(config.run_dir))
    torch.compiler.reset()  # else the networks trained before in this process use up what may be compiled
    seed_everything(config.seed, workers=True, verbose=False)
    data = zoo.create_data(**config.data, shuffle_seed=config.seed)
    data.check()
    system = ImageClassifier.from_config(create_model(data).train(), data, config)
    if not run.config.exists():
        start_run(config)
    trainer = create_trainer(config, run)
    tests = AccuracyByEpoch(data, epochs)
    trainer.callbacks.insert(0, tests)  # before the checkpoint of the epoch is written
    trainer.fit(system, datamodule=data, ckpt_path=run.checkpoint, weights_only=True)
    return tests.top1
