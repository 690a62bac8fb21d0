"""Guards, files and logs around the training steps."""

import contextlib
import errno
import os
import signal

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from torch.utils.data import DataLoader

from zoo.training.callbacks import (
    AtomicCheckpointIO,
    SaveLastAndBest,
    StopOnSignal,
    TrainingInterrupted,
    format_epoch,
    write_rows,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class FakeTrainer:
    """Stands for a Trainer at the end of an epoch: the metrics it logged, and the files it was asked to save."""

    def __init__(self):
        self.callback_metrics = {}
        self.saved = []

    def save_checkpoint(self, path):
        self.saved.append(path)


def best_epochs(accuracies):
    """Feed validation accuracies (None: no validation that epoch) and return the epochs saved as best."""
    trainer, keeper = FakeTrainer(), SaveLastAndBest("last", "best")
    chosen = []
    for epoch, accuracy in enumerate(accuracies):
        trainer.saved.clear()
        if accuracy is not None:
            trainer.callback_metrics["val_top1"] = torch.tensor(accuracy)
            keeper.on_validation_end(trainer, None)
        keeper.on_train_epoch_end(trainer, None)
        assert trainer.saved[-1] == "last"
        if "best" in trainer.saved:
            chosen.append(epoch)
    return chosen


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([float("nan"), 0.5, 0.6], [1, 2]),
        ([0.5, float("nan"), 0.4], [0]),
        ([float("nan"), float("nan")], []),
        ([0.5, 0.5], [0]),  # the earliest of equals
        ([0.0], [0]),
        ([None, 0.5, None, 0.6], [1, 3]),  # an old accuracy does not count for an epoch without validation
    ],
)
def test_nan_is_never_best_and_the_last_epoch_is_always_kept(accuracies, expected):
    assert best_epochs(accuracies) == expected


def test_best_accuracy_survives_a_resume():
    before, after = SaveLastAndBest("last", "best"), SaveLastAndBest("last", "best")
    before.best_score = 0.7
    after.load_state_dict(before.state_dict())
    trainer = FakeTrainer()
    trainer.callback_metrics["val_top1"] = torch.tensor(0.6)
    after.on_validation_end(trainer, None)
    after.on_train_epoch_end(trainer, None)
    assert trainer.saved == ["last"]


def test_a_full_disk_leaves_the_earlier_checkpoint_whole(tmp_path, monkeypatch):
    file = tmp_path / "last.ckpt"
    writer = AtomicCheckpointIO()
    writer.save_checkpoint({"epoch": 1}, file)

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"No space left on device while writing: .*last\.ckpt"):
        writer.save_checkpoint({"epoch": 2}, file)
    assert torch.load(file, weights_only=True) == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


def test_rows_with_different_keys_share_a_table(tmp_path):
    write_rows(tmp_path / "a.csv", [{"epoch": 1, "val_top1": 0.5}, {"epoch": 2, "train_loss": 0.25}])
    assert (tmp_path / "a.csv").read_text() == "epoch,val_top1,train_loss\n1,0.5,\n2,,0.25\n"


def test_an_epoch_without_validation_prints():
    row = {"epoch": 1, "images_per_second": 10.0, "train_seconds": 2.0}
    assert format_epoch(row, None) == "epoch  1  10 images/s  2.0 s"


@pytest.mark.filterwarnings("ignore")  # of the demonstration model and of Lightning's own code
@pytest.mark.parametrize("interrupted", [False, True])
def test_signals_do_again_what_they_did_before_once_the_fit_is_over(tmp_path, interrupted):
    """A SIGTERM during the test that follows training must end the program, not be taken for one during training."""

    class Press(Callback):
        def on_train_batch_end(self, *arguments):
            heard.append({number: signal.getsignal(number) for number in SIGNALS})
            if interrupted:
                signal.raise_signal(signal.SIGTERM)

    heard = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stop = StopOnSignal(tmp_path / "last.ckpt")
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, limit_train_batches=2, callbacks=[Press(), stop], default_root_dir=tmp_path,
        enable_checkpointing=False, **options,
    )  # fmt: skip
    with pytest.raises(TrainingInterrupted) if interrupted else contextlib.nullcontext():
        trainer.fit(BoringModel(), train_dataloaders=DataLoader(RandomDataset(32, 4)))
    assert len(heard) == (1 if interrupted else 2)
    assert all(handlers[number] == stop._ask for handlers in heard for number in SIGNALS)
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
