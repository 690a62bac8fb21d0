"""What is timed: segments of training through this project and through the stack people use."""

import contextlib
import dataclasses
import io
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import transforms

import zoo
from zoo.config import RunConfig, parse_run_config
from zoo.data import create_data
from zoo.data.augmentation import CropFlipCutout
from zoo.data.data_module import ImageDataModule, ImageSet, Split, TensorSet
from zoo.preprocessing import PRESETS
from zoo.training.image_classifier import ImageClassifier
from zoo.training.optimization import create_optimizer
from zoo.training.run import create_trainer, start_run

SEED = 0
WARMUP_STEPS = 2
NUM_WORKERS = 2
NUM_READ_AHEAD = 2 * NUM_WORKERS  # batches, torch's default


@dataclasses.dataclass(frozen=True)
class Net:
    """One net of the comparison."""

    model: str
    attention: str
    width_multiplier: float = 1.0

    @property
    def subject(self) -> str:
        """As figures name it: ``resnet20``, ``resnet20 cbam``, ``mobilenet_v2 x 0.25 se``."""
        model = self.model if self.width_multiplier == 1 else f"{self.model} x {self.width_multiplier}"
        return model if self.attention == "none" else f"{model} {self.attention}"

    def create(self, num_classes: int) -> nn.Module:
        """Build it with fixed weights."""
        torch.manual_seed(SEED)
        return zoo.create_model(
            self.model,
            attention=self.attention,
            num_classes=num_classes,
            stem="cifar",
            width_multiplier=self.width_multiplier,
        )


class SyntheticCIFAR(ImageDataModule):
    """Random bytes in the shape and number of CIFAR-10, for a machine that does not have the images."""

    def __init__(self, *, num_images: int = 45_000, batch_size: int = 128, shuffle_seed: int = SEED) -> None:
        self._num_images = num_images
        super().__init__(
            name="synthetic",
            class_names=[str(label) for label in range(10)],
            preprocessing=PRESETS["cifar10"],
            batch_size=batch_size,
            eval_batch_size=batch_size,
            shuffle_seed=shuffle_seed,
            augmentation=CropFlipCutout(),
        )

    def read_splits(self) -> dict[Split, ImageSet]:
        """Draw the images; the evaluation splits, which nothing here reads, hold one batch."""
        generator = torch.Generator().manual_seed(SEED)
        splits: dict[Split, ImageSet] = {}
        sizes: dict[Split, int] = {"train": self._num_images, "val": self.batch_size, "test": self.batch_size}
        for split, size in sizes.items():
            images = torch.randint(0, 256, (size, 32, 32, 3), dtype=torch.uint8, generator=generator)
            splits[split] = TensorSet(images, torch.arange(size) % 10, split)
        return splits

    def describe_source(self) -> list[str]:
        """Say that these are no photographs."""
        return ["Random bytes; speed only."]


class PerImageDataset(Dataset[tuple[Tensor, int]]):
    """The images as torchvision's CIFAR10 hands them out: one PIL image at a time through its transforms."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images.numpy()
        self.labels = labels.tolist()
        preset = PRESETS["cifar10"]
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(preset.mean, preset.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class SegmentClock(Callback):
    """Times the steps of an epoch after the first ones, and what lies between a step's end and the next one's start.

    Between two steps the trainer fetches, augments and normalises the next batch; its own loop is counted with them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.seconds_between = 0.0
        self._started = 0.0
        self._ended = 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Add the time since the last step ended."""
        del trainer, pl_module, batch
        if batch_idx >= WARMUP_STEPS:
            self.seconds_between += time.perf_counter() - self._ended

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock after the last step that does not count, and read it after every other one."""
        del trainer, pl_module, outputs, batch
        self._ended = time.perf_counter()
        if batch_idx + 1 == WARMUP_STEPS:
            self._started = self._ended
        self.seconds = self._ended - self._started


class TrainerSegments:
    """Segments of an epoch through what ``train.py`` builds: its trainer, its system, its data module."""

    def __init__(self, net: Net, data: ImageDataModule, folder: Path, config: RunConfig) -> None:
        self.data = data
        self.config = config
        self.folder = folder
        self.system = ImageClassifier.from_config(net.create(data.num_classes), data, config)
        self.shares_between: list[float] = []

    def run(self, num_steps: int) -> float:
        """Train ``num_steps`` after a few that do not count, and return images per second."""
        trainer_options = {**self.config.trainer, "limit_train_batches": WARMUP_STEPS + num_steps}
        config = dataclasses.replace(self.config, trainer=trainer_options, run_dir=str(self.folder))
        clock = SegmentClock()
        with contextlib.redirect_stdout(io.StringIO()):
            trainer = create_trainer(config, start_run(config))
            trainer.callbacks.append(clock)  # type: ignore[attr-defined]  # set by the connector
            trainer.fit(self.system, datamodule=self.data)
        self.shares_between.append(100 * clock.seconds_between / clock.seconds)
        return num_steps * self.data.batch_size / clock.seconds


def step_of(system: ImageClassifier, *, autocast: bool) -> Callable[[Tensor, Tensor], None]:
    """Return the function that takes one training step with a net's loss and optimizer, without the trainer."""
    optimizer = create_optimizer(system.model, system.optimization)

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = system.loss(system(images), labels)
        loss.backward()
        optimizer.step()

    return step


def usual_step_of(model: nn.Module) -> Callable[[Tensor, Tensor], None]:
    """Return one step as tutorials write it: fp32, contiguous."""
    model.train()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def time_steps(step: Callable[[Tensor, Tensor], None], batches: Iterator[tuple[Tensor, Tensor]], count: int) -> float:
    """Take a few steps that do not count, then ``count``, and return images per second, fetching included."""
    for _ in range(WARMUP_STEPS):
        step(*next(batches))
    num_images = 0
    started = time.perf_counter()
    for _ in range(count):
        images, labels = next(batches)
        step(images, labels)
        num_images += len(images)
    return num_images / (time.perf_counter() - started)


def trainer_config(batch_size: int) -> RunConfig:
    """Return what ``train.py`` makes of its defaults for CIFAR-10, without validation, which is no training."""
    arguments = ["--data.name", "cifar10", "--data.batch_size", str(batch_size), "--seed", str(SEED)]
    arguments += ["--trainer.accelerator", "cpu", "--trainer.max_epochs", "1", "--trainer.limit_val_batches", "0"]
    return parse_run_config([*arguments, "--overwrite", "true"])


def load_data(batch_size: int) -> ImageDataModule:
    """Return CIFAR-10 where it is present, else random images of its shape, and say which."""
    try:
        data = create_data("cifar10", batch_size=batch_size, shuffle_seed=SEED)
    except ValueError as error:
        print(f"Random images stand in for CIFAR-10: {error}")
        return SyntheticCIFAR(batch_size=batch_size)
    return data


def prepared_batches(data: ImageDataModule) -> Iterator[tuple[Tensor, Tensor]]:
    """Load an epoch as the trainer does: gathered, augmented and normalised batch by batch."""
    for batch in data.create_loader("train"):
        prepared = data.prepare_batch(batch, training=True)
        yield prepared.images, prepared.labels


def usual_batches(dataset: PerImageDataset, batch_size: int, start_method: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Load an epoch as tutorials do: image by image in worker processes."""
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        num_workers=NUM_WORKERS,
        drop_last=True,
        multiprocessing_context=start_method,
    )
    batches = iter(loader)
    for _ in range(NUM_READ_AHEAD):  # what workers read ahead of the clock is no speed
        next(batches)
    yield from batches


class UsualStack:
    """The usual stack in a process of its own, which nothing this project sets up for itself can speed up.

    Args:
        images: uint8 (images, height, width, channels).
        labels: int64 (images,).
        num_classes: Outputs of the nets.
        batch_size: Images per step.
    """

    def __init__(self, images: Tensor, labels: Tensor, num_classes: int, batch_size: int) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # A spawned process would spawn its workers too; theirs start as they do in any program on this system.
        settings = (num_classes, batch_size, torch.get_num_threads(), torch.multiprocessing.get_start_method())
        self._process = context.Process(target=_serve_usual_stack, args=(theirs, images, labels, *settings))
        self._process.start()
        theirs.close()

    def run(self, net: Net, count: int, *, end_to_end: bool) -> float:
        """Train a net for ``count`` steps, from images or on one prepared batch, and return images per second.

        Raises:
            EOFError: The process has ended; what it wrote says why.
        """
        self._connection.send((net, count, end_to_end))
        return self._connection.recv()

    def close(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._connection.send(None)
        self._process.join()


def _serve_usual_stack(
    connection: Any,
    images: Tensor,
    labels: Tensor,
    num_classes: int,
    batch_size: int,
    num_threads: int,
    start_method: str,
) -> None:
    torch.set_num_threads(num_threads)
    dataset = PerImageDataset(images, labels)
    one_batch = default_collate([dataset[index] for index in range(batch_size)])
    steps: dict[Net, Callable[[Tensor, Tensor], None]] = {}
    while (request := connection.recv()) is not None:
        net, count, end_to_end = request
        if net not in steps:
            steps[net] = usual_step_of(net.create(num_classes))
        batches = usual_batches(dataset, batch_size, start_method) if end_to_end else itertools.repeat(one_batch)
        connection.send(time_steps(steps[net], batches, count))
