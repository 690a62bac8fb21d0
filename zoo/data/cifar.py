"""CIFAR-10 and CIFAR-100: 60,000 photographs of 32 x 32 pixels, held in memory."""

import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torchvision import datasets
from torchvision.datasets.utils import calculate_md5
from typing_extensions import override

from zoo.data.augmentation import CropFlipCutout, PaddingMode
from zoo.data.data_module import ImageDataModule, ImageSet, Split, TensorSet
from zoo.data.splitting import image_keys, split_stratified
from zoo.preprocessing import PRESETS
from zoo.registry import DATASETS

Source = type[datasets.CIFAR10]

_ARCHIVE_BYTES = {"cifar-10-python.tar.gz": 170_498_071, "cifar-100-python.tar.gz": 169_001_437}


class CIFAR(ImageDataModule):
    """What CIFAR-10 and CIFAR-100 share; the options are those of :class:`CIFAR10`."""

    _source: Source

    def __init__(
        self,
        name: str,
        *,
        root: str | None,
        download: bool,
        batch_size: int,
        eval_batch_size: int,
        validation_fraction: float,
        augmentation: CropFlipCutout,
        shuffle_seed: int,
        class_names: Sequence[str] | None,
    ) -> None:
        self._root = Path(root or os.environ.get("ZOO_DATA") or "data").expanduser()
        if download:
            download_files(self._source, self._root)
        check_present(self._source, self._root)
        self._validation_fraction = validation_fraction
        super().__init__(
            name=name,
            class_names=read_class_names(self._source, self._root),
            preprocessing=PRESETS[name],
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            demanded_class_names=class_names,
            augmentation=augmentation,
        )

    @override
    def read_splits(self) -> dict[Split, ImageSet]:
        try:
            train, test = (self._source(str(self._root), train=train) for train in (True, False))
        except RuntimeError:  # torchvision says only that some file is missing or changed
            check_unchanged(self._source, self._root)
            raise
        images, labels = torch.from_numpy(train.data), torch.tensor(train.targets)
        kept, held_out = split_stratified(
            labels, image_keys(len(labels), self._source.base_folder), self._validation_fraction, self.own_class_names
        )
        return {
            "train": TensorSet(images[kept], labels[kept], "train", kept),
            "val": TensorSet(images[held_out], labels[held_out], "train", held_out),
            "test": TensorSet(torch.from_numpy(test.data), torch.tensor(test.targets), "test"),
        }

    @override
    def describe_source(self) -> list[str]:
        return [
            f"Read from {self._root / self._source.base_folder}, MD5 sums checked.",
            f"Validation: {self._validation_fraction:.0%} of each class of the training images, the same in every run.",
        ]


@DATASETS.register("cifar10")
class CIFAR10(CIFAR):
    """CIFAR-10: ten classes of objects and animals.

    Args:
        root: Folder that holds ``cifar-10-batches-py``; ``None`` takes the variable ``ZOO_DATA``, else ``data``.
        download: Fetch what is missing into ``root``; without it nothing is ever downloaded.
        batch_size: Training images per step and process.
        eval_batch_size: Validation and test images per step and process.
        validation_fraction: Share of the training images held out for validation, between 0 and 1.
        crop_padding: Largest random shift in pixels; 0 for none.
        padding_mode: What fills the border after a shift: ``"reflect"`` (mirrored) or ``"constant"`` (black).
        horizontal_flip: Mirror training images half of the time.
        cutout: Side in pixels of a square set to the mean colour; 0 for none.
        shuffle_seed: Seed of order and augmentation.
        class_names: Order of classes that the labels must follow; ``None`` takes the data set's own.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009,
    https://www.cs.toronto.edu/~kriz/cifar.html
    """

    _source = datasets.CIFAR10

    def __init__(
        self,
        *,
        root: str | None = None,
        download: bool = False,
        batch_size: int = 128,
        eval_batch_size: int = 512,
        validation_fraction: float = 0.1,
        crop_padding: int = 4,
        padding_mode: PaddingMode = "reflect",
        horizontal_flip: bool = True,
        cutout: int = 0,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            "cifar10",
            root=root,
            download=download,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            validation_fraction=validation_fraction,
            augmentation=CropFlipCutout(crop_padding, padding_mode, horizontal_flip, cutout),
            shuffle_seed=shuffle_seed,
            class_names=class_names,
        )


@DATASETS.register("cifar100")
class CIFAR100(CIFAR):
    """CIFAR-100: a hundred fine classes; read from ``cifar-100-python``, with the options of :class:`CIFAR10`."""

    _source = datasets.CIFAR100

    def __init__(
        self,
        *,
        root: str | None = None,
        download: bool = False,
        batch_size: int = 128,
        eval_batch_size: int = 512,
        validation_fraction: float = 0.1,
        crop_padding: int = 4,
        padding_mode: PaddingMode = "reflect",
        horizontal_flip: bool = True,
        cutout: int = 0,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            "cifar100",
            root=root,
            download=download,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            validation_fraction=validation_fraction,
            augmentation=CropFlipCutout(crop_padding, padding_mode, horizontal_flip, cutout),
            shuffle_seed=shuffle_seed,
            class_names=class_names,
        )


def expected_files(source: Source) -> dict[str, str]:
    """Return the MD5 sum of every file that belongs to a set."""
    return dict([*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])])


def check_present(source: Source, root: Path) -> None:
    """Check that all files of a set are there.

    Raises:
        ValueError: One is not; the message says what to put where, or what is wrong with an archive found there.
    """
    folder = root / source.base_folder
    missing = [name for name in expected_files(source) if not (folder / name).is_file()]
    if not missing:
        return
    archive = root / source.filename
    if archive.is_file():
        _check_file(archive, source.tgz_md5)
        raise ValueError(f"{archive} is complete but not unpacked: run tar -xzf '{archive}' -C '{root}'")
    raise ValueError(
        f"{folder} lacks {', '.join(missing)}: unpack {source.filename} from {source.url} into {root}, "
        f"or name the folder that holds {source.base_folder} by the option root or the variable ZOO_DATA, "
        "or set download to true"
    )


def check_unchanged(source: Source, root: Path) -> None:
    """Check the content of all files of a set.

    Raises:
        ValueError: One differs; the message names it with the expected and the found MD5 sum, and its size.
    """
    for name, md5 in expected_files(source).items():
        _check_file(root / source.base_folder / name, md5)


def _check_file(path: Path, md5: str) -> None:
    found = calculate_md5(path)
    if found != md5:
        size = path.stat().st_size
        expected = f"{_ARCHIVE_BYTES[path.name]} bytes, " if path.name in _ARCHIVE_BYTES else ""
        raise ValueError(
            f"{path} is damaged: expected {expected}MD5 {md5}, found {size} bytes, MD5 {found}; "
            "delete it and fetch it again"
        )


def read_class_names(source: Source, root: Path) -> list[str]:
    """Return the names of the classes, in the order of the labels."""
    path = root / source.base_folder / source.meta["filename"]
    _check_file(path, source.meta["md5"])
    return list(pickle.loads(path.read_bytes(), encoding="latin1")[source.meta["key"]])


def download_files(source: Source, root: Path) -> None:
    """Fetch a set unless it is whole; files take their names only when all of them are complete.

    Raises:
        ValueError: There is no connection, or what came is not the set.
    """
    folder = root / source.base_folder
    expected = expected_files(source)
    if all((folder / name).is_file() and calculate_md5(folder / name) == md5 for name, md5 in expected.items()):
        return
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{source.base_folder}.", suffix=".partial") as partial:
        try:
            source(partial, download=True)
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"{source.url} cannot be downloaded ({error}): unpack {source.filename} into {root} by hand"
            ) from error
        folder.mkdir(exist_ok=True)
        for name in expected:
            (Path(partial) / source.base_folder / name).replace(folder / name)
