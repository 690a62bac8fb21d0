"""What every data set of classes offers: classes, splits, loaders, preparation on the device, and a text of it all."""

import abc
import hashlib
from collections.abc import Sequence

from torch import Tensor
from typing_extensions import override

from zoo.data.augmentation import CropFlipCutout
from zoo.data.labels import check_labels, map_labels
from zoo.data.split_module import SPLITS, ImageSet, Split, SplitDataModule, TensorSet, abbreviate
from zoo.preprocessing import Preprocessing

__all__ = ["SPLITS", "ImageDataModule", "ImageSet", "Split", "TensorSet", "abbreviate"]


class ImageDataModule(SplitDataModule):
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

    _image_sets: dict[Split, ImageSet] | None = None

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
        super().__init__(
            name=name,
            preprocessing=preprocessing,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            augmentation=augmentation,
        )
        self.own_class_names = tuple(class_names)
        self.class_names = tuple(class_names if demanded_class_names is None else demanded_class_names)
        self._label_map = map_labels(self.own_class_names, self.class_names)

    @property
    def num_classes(self) -> int:
        """Number of classes, which is the number of outputs a net for this data has."""
        return len(self.class_names)

    @override
    def output_names(self) -> tuple[str, ...]:
        return self.class_names

    @abc.abstractmethod
    def read_splits(self) -> dict[Split, ImageSet]:
        """Read the three splits, labels in the order of ``own_class_names``."""

    @abc.abstractmethod
    def describe_source(self) -> list[str]:
        """Say, one sentence per line, where the images come from, how they were split and what was skipped."""

    @override
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
        self.check_sizes()

    def labels(self, split: Split) -> Tensor:
        """Return the label of every image of a split, int64 (images,)."""
        return self._sets()[split].labels

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

    def describe(self) -> str:
        """Return a readable text: source, classes, splits, and what is done to the images."""
        lines = [f"{self.name}: {self.num_classes} classes, {self.describe_counts()} images"]
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
