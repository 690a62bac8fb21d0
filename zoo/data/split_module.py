"""What data with splits have in common, whatever is to be said of an image: loaders, resuming, preparation."""

import abc
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, get_args

import lightning
import torch
from torch import Tensor
from typing_extensions import override

from zoo.data.augmentation import CropFlipCutout, uniform_draws
from zoo.data.batches import Batch, BatchSampler, ResumableLoader, TensorLoader, derive_seed
from zoo.preprocessing import Preprocessing

Split = Literal["train", "val", "test", "held_out"]
"""``held_out``: only in data that keep combinations out of all other splits."""

SPLITS: tuple[Split, ...] = ("train", "val", "test")


class ImageSet(Protocol):
    """The images of one split: labels, names, and a way to load them."""

    labels: Tensor

    def sample_name(self, index: int) -> str:
        """Return the path or the number by which a person finds this image."""

    def content_digest(self) -> str:
        """Return a digest that changes when an image does."""

    def create_loader(self, sampler: BatchSampler, *, training: bool) -> ResumableLoader:
        """Return a loader of uint8 batches."""


class TensorSet:
    """Images in memory.

    Args:
        images: uint8 (images, height, width, channels).
        labels: int64 (images,).
        name: How the images are called: ``name/00017``.
        numbers: The number of each image in its source; ``None`` counts from 0.
    """

    def __init__(self, images: Tensor, labels: Tensor, name: str, numbers: Tensor | None = None) -> None:
        self.images = images.contiguous()
        self.labels = labels
        self._name = name
        self._numbers = torch.arange(len(labels)) if numbers is None else numbers

    def sample_name(self, index: int) -> str:
        """Return ``split/number``."""
        return f"{self._name}/{int(self._numbers[index]):05d}"

    def content_digest(self) -> str:
        """Return the sha256 of all pixels."""
        return hashlib.sha256(self.images.numpy().data).hexdigest()

    def create_loader(self, sampler: BatchSampler, *, training: bool) -> ResumableLoader:  # noqa: ARG002
        """Return a loader that gathers from memory; augmentation comes later, on the device."""
        return TensorLoader(self.images, self.labels, sampler)


class SplitDataModule(lightning.LightningDataModule, abc.ABC):
    """Images in splits, each image with what is to be learned of it.

    Loaders hand out :class:`~zoo.data.batches.Batch` with uint8 images; :meth:`prepare_batch` augments (training only)
    and normalises them on their device, and Lightning calls it after the transfer. Every random draw is a function of
    ``shuffle_seed``, the epoch and the image, so neither the number of workers nor a resume changes a run.

    Constructing looks at what is there (options, folders); :meth:`setup` reads and checks it.

    Args:
        name: Registered name.
        preprocessing: What evaluation does to an image.
        batch_size: Training images per step and process; a last batch that is not full is left out.
        eval_batch_size: Validation and test images per step and process.
        shuffle_seed: Seed of the order and of the augmentation.
        augmentation: What training does to an image, batch-wise.
    """

    allow_zero_length_dataloader_with_multiple_devices = False
    stage_of_split: ClassVar[dict[str, str]] = {
        "train": "training",
        "val": "validation",
        "test": "test",
        "held_out": "held-out",
    }

    def __init__(
        self,
        *,
        name: str,
        preprocessing: Preprocessing,
        batch_size: int,
        eval_batch_size: int,
        shuffle_seed: int,
        augmentation: CropFlipCutout | None = None,
    ) -> None:
        super().__init__()
        if batch_size < 1 or eval_batch_size < 1:
            raise ValueError(f"batch_size ({batch_size}) and eval_batch_size ({eval_batch_size}) must be at least 1")
        self.name = name
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.shuffle_seed = shuffle_seed
        self.augmentation = augmentation
        self._train_sampler: BatchSampler | None = None
        self._train_loader: ResumableLoader | None = None
        self._train_state: dict[str, Any] | None = None
        self._loaders: list[ResumableLoader] = []

    @property
    def in_channels(self) -> int:
        """Channels of an image: 1 or 3."""
        return self.preprocessing.channels

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.preprocessing.height, self.preprocessing.width

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits there are."""
        return tuple(split for split in get_args(Split) if split in self._sets())

    @abc.abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """Return what the logits of a net for this data stand for: classes, or words."""

    @abc.abstractmethod
    def digest(self) -> str:
        """Return the sha256 of what a run learns from and is judged by."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Return a readable text: source, splits, and what is done to the images."""

    @abc.abstractmethod
    def _sets(self) -> Mapping[Split, ImageSet]:
        """Return the splits, read and checked at the first call."""

    @override
    def setup(self, stage: str | None = None) -> None:
        """Read and check the data, once.

        Raises:
            ValueError: Something in them is wrong.
        """
        self._sets()

    def check_sizes(self) -> None:
        """Raise ValueError when a split has no image, or the training images do not fill one batch."""
        for split, image_set in self._sets().items():
            if len(image_set.labels) == 0:
                raise ValueError(f"{self.name} has no {self.stage_of_split[split]} images")
        len(self.create_sampler("train"))

    def num_images(self, split: Split) -> int:
        """Return the number of images in a split."""
        return len(self._sets()[split].labels)

    @property
    def num_train(self) -> int:
        """Number of training images, the validation split not counted."""
        return self.num_images("train")

    @property
    def num_val(self) -> int:
        """Number of validation images."""
        return self.num_images("val")

    @property
    def num_test(self) -> int:
        """Number of test images."""
        return self.num_images("test")

    def sample_names(self, split: Split) -> list[str]:
        """Return a name for every image of a split: its path, or its number in the source."""
        image_set = self._sets()[split]
        return [image_set.sample_name(index) for index in range(len(image_set.labels))]

    def create_sampler(self, split: Split, shard: tuple[int, int] | None = None) -> BatchSampler:
        """Return what decides the batches of a split.

        Args:
            split: ``"train"``, ``"val"`` or ``"test"``.
            shard: (rank, number of processes); ``None`` reads the distributed run.
        """
        training = split == "train"
        return BatchSampler(
            self.num_images(split),
            self.batch_size if training else self.eval_batch_size,
            shuffle=training,
            shuffle_seed=self.shuffle_seed,
            shard=shard,
        )

    def create_loader(self, split: Split, shard: tuple[int, int] | None = None) -> ResumableLoader:
        """Return a loader of a split: shuffled, augmented and full batches only for ``"train"``.

        Raises:
            ValueError: There is no such split, or it has too few images for one batch.
        """
        if split not in self._sets():
            raise ValueError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}")
        training = split == "train"
        sampler = self.create_sampler(split, shard)
        len(sampler)
        if training:
            self._train_sampler = sampler
        loader = self._sets()[split].create_loader(sampler, training=training)
        if training:
            self._train_loader = loader
            if self._train_state is not None:
                loader.load_state_dict(self._train_state)
        self._loaders.append(loader)
        return loader

    @override
    def train_dataloader(self) -> ResumableLoader:
        return self.create_loader("train")

    @override
    def val_dataloader(self) -> ResumableLoader:
        return self.create_loader("val")

    @override
    def test_dataloader(self) -> ResumableLoader:
        return self.create_loader("test")

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return how far into its epoch the training loader is; part of a checkpoint.

        Lightning saves the loader's own state too, but does not hand it back when the number of steps was asked for
        before the checkpoint was read, as every schedule that counts steps does.
        """
        return {} if self._train_loader is None else {"train_loader": self._train_loader.state_dict()}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next training loader continue where the checkpoint was written."""
        self._train_state = state_dict["train_loader"]
        if self._train_loader is not None:
            self._train_loader.load_state_dict(self._train_state)

    @override
    def teardown(self, stage: str | None = None) -> None:
        """End the worker processes of all loaders."""
        for loader in self._loaders:
            loader.close()
        self._loaders.clear()

    @property
    def train_epoch(self) -> int:
        """Epoch that the training loader is in."""
        return 0 if self._train_sampler is None else self._train_sampler.epoch

    def prepare_batch(self, batch: Batch, training: bool) -> Any:
        """Turn a batch of a loader into the input of a net, on the device where it is.

        Args:
            batch: uint8 images.
            training: Whether to augment, with the draws of the training loader's present epoch.

        Returns:
            The batch with float32 images, normalised.
        """
        if not training or self.augmentation is None:
            return batch._replace(images=self.preprocessing.normalize(batch.images))
        draws = uniform_draws(batch.indices, 5, derive_seed("augmentation", self.shuffle_seed, self.train_epoch))
        images = self.preprocessing.normalize(self.augmentation.move(batch.images, draws))
        return batch._replace(images=self.augmentation.blank(images, draws))

    @override
    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Any:
        return self.prepare_batch(batch, training=self.trainer is not None and bool(self.trainer.training))

    def describe_training(self) -> str:
        """Say what training does to an image on top of evaluation."""
        return "unchanged" if self.augmentation is None else self.augmentation.describe()

    def describe_counts(self) -> str:
        """Say how many images each split has."""
        return ", ".join(f"{self.num_images(split)} {self.stage_of_split[split]}" for split in self.splits)


def abbreviate(names: Sequence[str], limit: int = 20) -> str:
    """Join names with commas, the first ``limit`` of them when there are more.

    >>> abbreviate(["a", "b", "c"], limit=2)
    'a, b, ... (3 in all)'
    """
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])}, ... ({len(names)} in all)"
