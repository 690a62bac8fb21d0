"""What every data set offers: classes, splits, loaders, preparation on the device, and a text of what was done."""

import abc
import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

import lightning
import torch
from torch import Tensor
from typing_extensions import override

from zoo.data.augmentation import CropFlipCutout, uniform_draws
from zoo.data.batches import Batch, BatchSampler, ResumableLoader, TensorLoader, derive_seed
from zoo.data.labels import check_labels, map_labels
from zoo.preprocessing import Preprocessing

Split = Literal["train", "val", "test"]
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


class ImageDataModule(lightning.LightningDataModule, abc.ABC):
    """A data set with a training, a validation and a test split.

    The validation split is always held out of the training images, the same for every seed; the test split is for the
    end. Loaders hand out :class:`~zoo.data.batches.Batch` with uint8 images; :meth:`prepare_batch` augments (training
    only) and normalises them on their device, and Lightning calls it after the transfer. Every random draw is a
    function of ``shuffle_seed``, the epoch and the image, so neither the number of workers nor a resume changes a run.

    Constructing looks at what is there (class names, options); :meth:`setup` reads and checks it.

    Args:
        name: Registered name.
        class_names: The classes in the order of the data set itself.
        preprocessing: What evaluation does to an image.
        batch_size: Training images per step and process; a last batch that is not full is left out.
        eval_batch_size: Validation and test images per step and process.
        shuffle_seed: Seed of the order and of the augmentation.
        demanded_class_names: The order of classes that labels must follow, as a weight card gives it; a class of the
            data that is not among them is an error, one that the data lacks is not.
        augmentation: What training does to an image, batch-wise.
    """

    allow_zero_length_dataloader_with_multiple_devices = False
    _image_sets: dict[Split, ImageSet] | None = None
    stage_of_split: ClassVar[dict[str, str]] = {"train": "training", "val": "validation", "test": "test"}

    def __init__(
        self,
        *,
        name: str,
        class_names: Sequence[str],
        preprocessing: Preprocessing,
        batch_size: int,
        eval_batch_size: int,
        shuffle_seed: int,
        demanded_class_names: Sequence[str] | None = None,
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
        self.own_class_names = tuple(class_names)
        self.class_names = tuple(class_names if demanded_class_names is None else demanded_class_names)
        self._label_map = map_labels(self.own_class_names, self.class_names)
        self._train_sampler: BatchSampler | None = None
        self._train_loader: ResumableLoader | None = None
        self._train_state: dict[str, Any] | None = None
        self._loaders: list[ResumableLoader] = []

    @property
    def num_classes(self) -> int:
        """Number of classes, which is the number of outputs a net for this data has."""
        return len(self.class_names)

    @property
    def in_channels(self) -> int:
        """Channels of an image: 1 or 3."""
        return self.preprocessing.channels

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.preprocessing.height, self.preprocessing.width

    @abc.abstractmethod
    def read_splits(self) -> dict[Split, ImageSet]:
        """Read the three splits, labels in the order of ``own_class_names``."""

    @abc.abstractmethod
    def describe_source(self) -> list[str]:
        """Say, one sentence per line, where the images come from, how they were split and what was skipped."""

    @override
    def setup(self, stage: str | None = None) -> None:
        """Read and check the data, once.

        Raises:
            ValueError: See :meth:`check`.
        """
        self._sets()

    def _sets(self) -> dict[Split, ImageSet]:
        if self._image_sets is None:
            image_sets = self.read_splits()
            for split, image_set in image_sets.items():
                check_labels(image_set.labels, self.own_class_names, image_set.sample_name, self.stage_of_split[split])
                image_set.labels = self._label_map[image_set.labels]
            self._image_sets = image_sets
        return self._image_sets

    def check(self, num_classes: int | None = None) -> None:
        """Check before training that labels, classes, batch sizes and the net's outputs agree.

        Args:
            num_classes: Number of outputs of the net; ``None`` leaves them unchecked.

        Raises:
            ValueError: A label outside the classes (naming the first such image), a number of outputs that is not the
                number of classes, or too few images for one batch.
        """
        if num_classes is not None and num_classes != self.num_classes:
            raise ValueError(
                f"the net has {num_classes} outputs, {self.name} has {self.num_classes} classes: "
                f"{abbreviate(self.class_names)}"
            )
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

    def labels(self, split: Split) -> Tensor:
        """Return the label of every image of a split, int64 (images,)."""
        return self._sets()[split].labels

    def sample_names(self, split: Split) -> list[str]:
        """Return a name for every image of a split: its path, or its number in the source."""
        image_set = self._sets()[split]
        return [image_set.sample_name(index) for index in range(len(image_set.labels))]

    def digest(self) -> str:
        """Return the sha256 of what a run learns from and is judged by: classes, splits, labels and images.

        It does not depend on where the data lie, nor on the seed. Of image files, see the data set's images for what
        is looked at.
        """
        digest = hashlib.sha256("\0".join(self.class_names).encode())
        for split in SPLITS:
            image_set = self._sets()[split]
            names = "\0".join(self.sample_names(split))
            labels = ",".join(map(str, image_set.labels.tolist()))
            digest.update(f"\n{split}\n{names}\n{labels}\n{image_set.content_digest()}".encode())
        return digest.hexdigest()

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
            ValueError: The split has too few images for one batch.
        """
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

    def prepare_batch(self, batch: Batch, training: bool) -> Batch:
        """Turn a batch of a loader into the input of a net, on the device where it is.

        Args:
            batch: uint8 images.
            training: Whether to augment, with the draws of the training loader's present epoch.

        Returns:
            The batch with float32 images, normalised.
        """
        if not training or self.augmentation is None:
            return batch._replace(images=self.preprocessing.normalize(batch.images))
        epoch = 0 if self._train_sampler is None else self._train_sampler.epoch
        draws = uniform_draws(batch.indices, 5, derive_seed("augmentation", self.shuffle_seed, epoch))
        images = self.preprocessing.normalize(self.augmentation.move(batch.images, draws))
        return batch._replace(images=self.augmentation.blank(images, draws))

    @override
    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        return self.prepare_batch(batch, training=self.trainer is not None and bool(self.trainer.training))

    def describe_training(self) -> str:
        """Say what training does to an image on top of evaluation."""
        return "unchanged" if self.augmentation is None else self.augmentation.describe()

    def describe(self) -> str:
        """Return a readable text: source, classes, splits, and what is done to the images."""
        counts = ", ".join(f"{self.num_images(split)} {self.stage_of_split[split]}" for split in SPLITS)
        lines = [f"{self.name}: {self.num_classes} classes, {counts} images"]
        lines += self.describe_source()
        if self.class_names != self.own_class_names:
            order = ", ".join(
                f"{name} -> {int(label)}" for name, label in zip(self.own_class_names, self._label_map, strict=True)
            )
            lines.append(f"Labels follow the demanded classes by name: {order}.")
        lines.append(f"Classes: {abbreviate(self.class_names)}.")
        lines.append(f"Every image: {self.preprocessing.describe()}.")
        lines.append(f"Training images: {self.describe_training()}.")
        return "\n".join(lines)


def abbreviate(names: Sequence[str], limit: int = 20) -> str:
    """Join names with commas, the first ``limit`` of them when there are more.

    >>> abbreviate(["a", "b", "c"], limit=2)
    'a, b, ... (3 in all)'
    """
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])}, ... ({len(names)} in all)"
