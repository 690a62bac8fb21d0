"""What happens around the training steps: seeds, guards, interruption, the log of epochs, safe files."""

import csv
import io
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.plugins.io import TorchCheckpointIO

from zoo.serialization import write_atomically


class TrainingInterrupted(Exception):  # noqa: N818 (it is no error: the run stands on disk and goes on)
    """Raised after a stop was asked for and the state was saved.

    Args:
        checkpoint: The file that holds it.
    """

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(f"training was interrupted; its state is in {checkpoint}")
        self.checkpoint = checkpoint


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint so that a crash or a full disk leaves the earlier one whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Serialise in memory, then write beside ``path`` and rename.

        Raises:
            OSError: The system refused to write; what was there before is still there.
        """
        if storage_options is not None:
            raise TypeError("storage_options have no effect on local checkpoints")
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_atomically(path, content.getvalue())


class SeedEachStep(Callback):
    """Makes every random draw of a training step a function of seed, epoch, step and process.

    So a resumed run draws what the uninterrupted one would have drawn, without saving any generator's state.

    Args:
        seed: The run's seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed torch on the CPU, and on all devices where the model is on one."""
        del batch
        position = (self.seed, trainer.current_epoch, batch_idx, trainer.global_rank)
        seed = int(np.random.SeedSequence(position).generate_state(1, np.uint64)[0])
        if pl_module.device.type == "cpu":  # asking absent devices takes longer than all else between two steps
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)


class StopOnNonFiniteLoss(Callback):
    """Stops a run whose loss is NaN or infinite, before anything of it is saved or counts as best."""

    def __init__(self) -> None:
        self._learning_rate = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note the rate the step is about to use."""
        del pl_module, batch, batch_idx
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Raise FloatingPointError with the step and its learning rate when the loss is no number."""
        del pl_module, batch, batch_idx
        loss = outputs["loss"]
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss.item()} at step {trainer.global_step} (epoch {trainer.current_epoch + 1}), "
                f"learning rate {self._learning_rate:.3g}"
            )


class StopOnSignal(Callback):
    """Saves the state at the end of the running step on Ctrl-C or SIGTERM, so that nothing done is lost.

    A signal during validation stops before the next epoch. A second signal stops at once. With several processes the
    steps at which each hears the signal differ, so the first stops at once too, and the checkpoint of the last whole
    epoch stands.

    Args:
        checkpoint: Where to save; after an epoch, what was saved there.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Remember who listens, before Lightning does."""
        del pl_module
        if stage == "fit" and trainer.world_size == 1:
            self._previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen, now that Lightning has noted the handlers that it will put back when it ends."""
        del trainer, pl_module
        for number in self._previous:
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._asked:
            self._restore()
            raise KeyboardInterrupt
        self._asked = True

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave, if asked to while the epoch before was validated and saved."""
        del trainer, pl_module
        if self._asked and self.checkpoint.exists():
            raise TrainingInterrupted(self.checkpoint)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save and leave, if asked to, where an optimizer step is complete."""
        del pl_module, outputs, batch
        accumulated = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if self._asked and (accumulated or batch_idx + 1 == trainer.num_training_batches):
            trainer.save_checkpoint(self.checkpoint)
            raise TrainingInterrupted(self.checkpoint)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the signals back, however the run ended."""
        del trainer, pl_module, stage
        self._restore()


class EpochLog(Checkpoint):
    """Keeps one row per epoch, in the checkpoint and as a CSV file that is whole at any moment.

    A row holds ``epoch`` (from 1), ``step``, ``learning_rate`` (of the epoch's last step), the logged metrics,
    ``train_seconds`` (without validation) and ``images_per_second`` (training images, data preparation included).
    It is a ``Checkpoint`` since Lightning calls those after the system has logged the epoch's figures, and in order,
    so that what is saved next holds the row.

    Args:
        path: The CSV file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        self._num_images = 0
        self._seconds = 0.0
        self._started = 0.0
        self._learning_rate = 0.0
        self._validated = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        del trainer, pl_module
        self._num_images, self._seconds, self._started = 0, 0.0, time.perf_counter()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note the rate the step is about to use."""
        del pl_module, batch, batch_idx
        self._started = self._started or time.perf_counter()  # resumed in the middle of an epoch
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the images."""
        del pl_module, outputs, batch_idx
        self._num_images += len(batch[0]) * trainer.world_size

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Halt the clock."""
        del trainer, pl_module
        self._seconds += time.perf_counter() - self._started

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the clock go on."""
        del trainer, pl_module
        self._started = time.perf_counter()
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the row and write the file."""
        del pl_module
        self._seconds += time.perf_counter() - self._started
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "learning_rate": self._learning_rate,
            "train_seconds": round(self._seconds, 3),
            "images_per_second": round(self._num_images / self._seconds, 1),
        }
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if not self._validated:  # Lightning still holds those of an earlier epoch
            metrics = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        self._validated = False
        self.rows.append(row | metrics)
        if trainer.is_global_zero:
            write_rows(self.path, self.rows)
            trainer.print(format_epoch(self.rows[-1], trainer.max_epochs))

    def state_dict(self) -> dict[str, Any]:
        """Return the rows so far, and what the running epoch has counted."""
        seconds = self._seconds + (time.perf_counter() - self._started if self._started else 0.0)
        return {"rows": [dict(row) for row in self.rows], "num_images": self._num_images, "seconds": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the rows of the run that is resumed."""
        self.rows = state_dict["rows"]
        self._num_images, self._seconds = state_dict["num_images"], state_dict["seconds"]


class SaveLastAndBest(Checkpoint):
    """Writes the last epoch, and the epoch with the highest validation score, the earliest of equals.

    Lightning's ``ModelCheckpoint`` skips the last epoch when it is not also the best, and forgets the best score
    when the run's folder was moved; neither may happen to a run that can be resumed.

    Args:
        last: File of the last epoch.
        best: File of the best epoch so far.
        score: The figure, logged as ``val_SCORE``, that is the higher the better.
    """

    def __init__(self, last: Path, best: Path, *, score: str = "top1") -> None:
        self.last = last
        self.best = best
        self.score = score
        self.best_score = -1.0
        self._validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note that this epoch has a validation score of its own."""
        del trainer, pl_module
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save; a score that is no number is never the best."""
        del pl_module
        score = float(trainer.callback_metrics.get(f"val_{self.score}", float("nan")))
        if self._validated and score > self.best_score:
            self.best_score = score
            trainer.save_checkpoint(self.best)
        self._validated = False
        trainer.save_checkpoint(self.last)

    def state_dict(self) -> dict[str, Any]:
        """Return the best score so far."""
        return {f"best_{self.score}": self.best_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the best score of the run that is resumed."""
        self.best_score = state_dict[f"best_{self.score}"]


_SHARES = {"top1": "top-1", "token_accuracy": "tokens", "exact_match": "exact match"}


def format_epoch(row: Mapping[str, float], max_epochs: int | None) -> str:
    """Say in one line how an epoch went; accuracies in percent.

    >>> row = {"epoch": 3, "images_per_second": 1830.2, "train_seconds": 24.6, "train_loss": 0.51, "val_top1": 0.84}
    >>> format_epoch(row, max_epochs=15)
    'epoch  3/15  train loss 0.5100  val top-1 84.00 %  1830 images/s  24.6 s'
    """
    parts = [f"epoch {row['epoch']:>2}" + (f"/{max_epochs}" if max_epochs and max_epochs > 0 else "")]
    for name, text in (("train_loss", "train loss"), ("val_loss", "val loss")):
        if name in row:
            parts.append(f"{text} {row[name]:.4f}")
    for name, text in _SHARES.items():
        for split in ("train", "val"):
            if f"{split}_{name}" in row:
                parts.append(f"{split} {text} {100 * row[f'{split}_{name}']:.2f} %")
    return "  ".join([*parts, f"{row['images_per_second']:.0f} images/s", f"{row['train_seconds']:.1f} s"])


class EpochBar(TQDMProgressBar):
    """A bar over the steps of the running epoch; validation, a moment, has none."""

    def init_validation_tqdm(self) -> Tqdm:
        """Return a bar that shows nothing."""
        return Tqdm(disable=True)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a CSV file atomically, with a column for every key that occurs, in order of appearance."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
