"""A folder of images: one sub-folder per class, with or without split folders above them."""

import hashlib
import itertools
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor
from typing_extensions import override

from zoo.data.batches import BatchSampler, ResumableLoader, current_shard
from zoo.data.class_folders import (
    ClassFolders,
    FoundImages,
    find_images,
    find_split_folders,
    match_classes,
    normal_form,
    path_keys,
)
from zoo.data.data_module import SPLITS, ImageDataModule, ImageSet, Split, abbreviate
from zoo.data.image_files import FileFacts, FileLoader, ImageFiles, RandomCropFlip, check_images, default_num_workers
from zoo.data.splitting import split_stratified
from zoo.preprocessing import PRESETS, Preprocessing
from zoo.registry import DATASETS

log = logging.getLogger(__name__)

OnCorrupt = Literal["raise", "skip"]
_GREY_MEAN, _GREY_STD = 0.449, 0.226
_DIGESTED_BYTES = 4096


class DecodesFiles(Protocol):
    """What a data module of files says about decoding."""

    preprocessing: Preprocessing
    shuffle_seed: int
    num_workers: int
    worker_timeout_s: int

    @property
    def file_augmentation(self) -> RandomCropFlip | None:
        """What training does to an image."""


class FileSet:
    """Images of one split on disk.

    Args:
        paths: The files.
        labels: int64 (images,).
        root: Folder that the names of images start from.
        module: Says how to decode.
    """

    def __init__(self, paths: Sequence[str], labels: Tensor, root: Path, module: DecodesFiles) -> None:
        self.paths = list(paths)
        self.labels = labels
        self._root = root
        self._module = module

    def sample_name(self, index: int) -> str:
        """Return the path below the root."""
        return Path(self.paths[index]).relative_to(self._root).as_posix()

    def content_digest(self) -> str:
        """Return the sha256 of each file's size and its first and last 4 KiB: all bytes would take minutes."""
        digest = hashlib.sha256()
        for path in self.paths:
            with Path(path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                digest.update(f"{size}\n".encode() + file.read(_DIGESTED_BYTES))
                file.seek(max(size - _DIGESTED_BYTES, 0))
                digest.update(file.read())
        return digest.hexdigest()

    def create_loader(self, sampler: BatchSampler, *, training: bool) -> ResumableLoader:
        """Return a loader with worker processes."""
        module = self._module
        augmentation = module.file_augmentation if training else None
        files = ImageFiles(self.paths, module.preprocessing, augmentation, module.shuffle_seed)
        return FileLoader(
            files,
            self.labels,
            sampler,
            num_workers=module.num_workers,
            keep_workers=training,
            timeout_s=module.worker_timeout_s,
        )


@DATASETS.register("image_folder")
class ImageFolder(ImageDataModule):
    """Images in class folders: ``root/<class>/<image>`` or ``root/<split>/<class>/<image>``.

    Splits: folders ``train``, ``val`` (or ``valid``, ``validation``) and ``test`` are taken as they are. Without a test
    folder the ``val`` folder is the test set; without that either, ``test_fraction`` of each class is. Without a
    validation folder of its own, ``validation_fraction`` of each class of the training images is held out. Images are
    held out by a hash of their path below the folder, so the split is the same on every machine and in every run.

    Classes are the sorted names of the training folders, and other splits follow them by name. Images are files of the
    usual suffixes in any case, in sub-folders of a class too; what is hidden, made by the operating system or foreign
    is left out and counted. All modes come out as RGB (or greyscale): see :func:`zoo.preprocessing.open_image`.

    Every file is decoded once before the first epoch, in parallel, so that a damaged one stops the run now
    (``on_corrupt="raise"``) or is left out of the lists (``"skip"``): an epoch never changes length, and no image is
    replaced. A thousand small photographs per second and core; ``check_files=False`` leaves it out.

    Args:
        root: The folder.
        image_size: Height and width of the input of the net.
        resize: Short side in pixels before the centre is cut out, at evaluation; ``None`` takes 8/7 of ``image_size``.
        keep_aspect: Cut out the centre of an image that is not square; otherwise the image is squeezed into a square.
        channels: 3 for RGB, 1 for greyscale.
        background: Colour behind transparent pixels, a name or ``#rrggbb``.
        smallest_crop: Least share of the area of a training image that a random crop keeps, above 0; 1 for no crops.
        horizontal_flip: Mirror training images half of the time.
        validation_fraction: Share of the training images held out; ``None`` is 0.1. Not with its own folder.
        test_fraction: Share of all images held out for the test; ``None`` is 0.2. Not with its own folder.
        on_corrupt: ``"raise"`` names damaged files and stops, ``"skip"`` leaves them out and counts them.
        check_files: Decode every file once before the first epoch.
        num_workers: Processes that decode; ``None`` is one per core, 8 at most; 0 decodes in the main process.
        worker_timeout_s: Longest wait for a batch before a stuck worker is reported, in seconds.
        batch_size: Training images per step and process.
        eval_batch_size: Validation and test images per step and process.
        shuffle_seed: Seed of order and augmentation.
        class_names: Order of classes that the labels must follow; ``None`` takes the sorted names.

    Raises:
        ValueError: An option is out of its range or would have no effect, or the folder is not as described.
    """

    def __init__(
        self,
        *,
        root: str,
        image_size: int = 128,
        resize: int | None = None,
        keep_aspect: bool = True,
        channels: Literal[1, 3] = 3,
        background: str = "white",
        smallest_crop: float = 0.25,
        horizontal_flip: bool = True,
        validation_fraction: float | None = None,
        test_fraction: float | None = None,
        on_corrupt: OnCorrupt = "raise",
        check_files: bool = True,
        num_workers: int | None = None,
        worker_timeout_s: int = 120,
        batch_size: int = 64,
        eval_batch_size: int = 128,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise ValueError(f"on_corrupt {on_corrupt!r} must be 'raise' or 'skip'")
        if on_corrupt == "skip" and not check_files:
            raise ValueError("on_corrupt 'skip' needs check_files: only a check finds what to skip")
        if num_workers is not None and num_workers < 0:
            raise ValueError(f"num_workers ({num_workers}) must be at least 0")
        if worker_timeout_s < 1:
            raise ValueError(f"worker_timeout_s ({worker_timeout_s}) must be at least 1")
        self.root = Path(root).expanduser()
        self.num_workers = default_num_workers() if num_workers is None else num_workers
        self.worker_timeout_s = worker_timeout_s
        self.file_augmentation = RandomCropFlip(smallest_crop, horizontal_flip)
        self._on_corrupt = on_corrupt
        self._check_files = check_files
        self._find_folders(validation_fraction, test_fraction)
        self._skipped: list[str] = []
        self._animated = 0
        self._foreign = 0
        # The class of each training folder, in the order of the labels.
        self._class_of_folder = self.choose_classes(self._training.names)
        super().__init__(
            name=type(self).registered_name,
            class_names=list(self._class_of_folder.values()),
            preprocessing=self._create_preprocessing(image_size, resize, keep_aspect, channels, background),
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            demanded_class_names=class_names,
        )

    registered_name = "image_folder"

    def choose_classes(self, folders: Sequence[str]) -> dict[str, str]:
        """Return the training folders to use, in the order of the labels, and what each class is called."""
        return {folder: normal_form(folder) for folder in folders}

    def _find_folders(self, validation_fraction: float | None, test_fraction: float | None) -> None:
        self._folders = find_split_folders(self.root)
        if "val" in self._folders and "test" not in self._folders:
            self._folders["test"] = self._folders.pop("val")
        for name, split, value in (
            ("validation_fraction", "val", validation_fraction),
            ("test_fraction", "test", test_fraction),
        ):
            if value is not None and split in self._folders:
                raise ValueError(f"{name} ({value}) has no effect: {self._folders[split]} is that split")
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} ({value}) must be between 0 and 1")
        self._validation_fraction = 0.1 if validation_fraction is None else validation_fraction
        self._test_fraction = 0.2 if test_fraction is None else test_fraction
        self._training = ClassFolders.find(self._folders.get("train", self.root))

    @staticmethod
    def _create_preprocessing(
        image_size: int, resize: int | None, keep_aspect: bool, channels: int, background: str
    ) -> Preprocessing:
        if resize is not None and not keep_aspect:
            raise ValueError(f"resize ({resize}) has no effect without keep_aspect: there is no crop")
        if channels not in (1, 3):
            raise ValueError(f"channels ({channels}) must be 1 (greyscale) or 3 (RGB)")
        preset = PRESETS["imagenet_224"]
        short_side = None if not keep_aspect else resize if resize is not None else round(image_size * 8 / 7)
        return Preprocessing(
            image_size,
            image_size,
            mean=preset.mean if channels == 3 else (_GREY_MEAN,),
            std=preset.std if channels == 3 else (_GREY_STD,),
            resize=short_side,
            background=background,
        )

    @override
    def read_splits(self) -> dict[Split, ImageSet]:
        label_of_folder = {folder: label for label, folder in enumerate(self._class_of_folder)}
        found = {"train": find_images(self._training.folder, label_of_folder)}
        for split in ("val", "test"):
            if split in self._folders:
                folders = ClassFolders.find(self._folders[split])
                found[split] = find_images(
                    folders.folder, match_classes(folders, self._training, label_of_folder, split)
                )
        self._foreign = sum(images.foreign for images in found.values())
        if self._check_files:
            self._drop_unreadable(found)
        self._check_classes(found)
        return self._hold_out(found)

    def _drop_unreadable(self, found: Mapping[str, FoundImages]) -> None:
        """Decode every file, shared out over the processes of a distributed run, and act on what cannot be read."""
        rank, world = current_shard()
        paths = [path for images in found.values() for path in images.paths]
        facts = check_images(paths[rank::world], self.preprocessing.channels, default_num_workers())
        if world > 1:
            parts: list[list[FileFacts]] = [[] for _ in range(world)]
            torch.distributed.all_gather_object(parts, facts)
            facts = [parts[index % world][index // world] for index in range(len(paths))]
        self._animated = sum(fact.frames > 1 for fact in facts)
        self._skipped = [fact.error for fact in facts if fact.error is not None]
        if not self._skipped:
            return
        shown = "\n  ".join(self._skipped[:20])
        if self._on_corrupt == "raise":
            raise ValueError(
                f"files that cannot be read: {len(self._skipped)} (on_corrupt 'skip' would leave them out):\n  {shown}"
            )
        log.warning("%s: leaving out %d files that cannot be read:\n  %s", self.name, len(self._skipped), shown)
        readable = {path: fact.error is None for path, fact in zip(paths, facts, strict=True)}
        for images in found.values():
            kept = [readable[path] for path in images.paths]
            images.paths = list(itertools.compress(images.paths, kept))
            images.labels = list(itertools.compress(images.labels, kept))

    def _check_classes(self, found: Mapping[str, FoundImages]) -> None:
        needed = 1 + sum(split not in self._folders for split in ("val", "test"))
        for split, images in found.items():
            numbers = torch.tensor(images.labels, dtype=torch.int64).bincount(minlength=len(self._class_of_folder))
            least = needed if split == "train" else 1
            few = {name: int(n) for name, n in zip(self._class_of_folder, numbers, strict=True) if n < least}
            if few and split == "train":
                listed = abbreviate([f"{name!r} ({count})" for name, count in few.items()])
                raise ValueError(
                    f"{self._training.folder} has too few images of {listed}: "
                    f"every class needs {needed}{', one for each split held out of it' if needed > 1 else ''}"
                )
            if few:
                warnings.warn(
                    f"{self._folders[split]} has no images of {abbreviate(list(few))}: no accuracy for these",
                    stacklevel=2,
                )

    def _hold_out(self, found: Mapping[str, FoundImages]) -> dict[Split, ImageSet]:
        """Divide what was found into the three splits, by folders where there are any, else by hash."""
        images = found["train"]
        labels = torch.tensor(images.labels, dtype=torch.int64)
        keys = path_keys(images.paths, self._training.folder)
        remaining = torch.arange(len(labels))
        parts: dict[Split, ImageSet] = {}
        fractions: dict[Split, float] = {"test": self._test_fraction, "val": self._validation_fraction}
        for split, fraction in fractions.items():
            if split in found:
                other = found[split]
                parts[split] = FileSet(other.paths, torch.tensor(other.labels, dtype=torch.int64), self.root, self)
                continue
            names = self.own_class_names
            kept, held_out = split_stratified(labels[remaining], keys[remaining.numpy()], fraction, names)
            parts[split] = self._select(images.paths, labels, remaining[held_out])
            remaining = remaining[kept]
        parts["train"] = self._select(images.paths, labels, remaining)
        return {split: parts[split] for split in SPLITS}

    def _select(self, paths: Sequence[str], labels: Tensor, indices: Tensor) -> FileSet:
        return FileSet([paths[index] for index in indices.tolist()], labels[indices], self.root, self)

    @override
    def describe_training(self) -> str:
        return self.file_augmentation.describe()

    @override
    def describe_source(self) -> list[str]:
        lines = [f"Read from {self.root} with {self.num_workers} worker processes."]
        for split, fraction, source in (
            ("val", self._validation_fraction, "the training images"),
            ("test", self._test_fraction, "all images"),
        ):
            if split in self._folders:
                lines.append(f"{self.stage_of_split[split].capitalize()}: the folder {self._folders[split].name}.")
            else:
                share = f"{fraction:.0%} of each class of {source}, by a hash of the path, the same in every run"
                lines.append(f"{self.stage_of_split[split].capitalize()}: {share}.")
        lines.append(f"Left out: {self._foreign} hidden or foreign files, {len(self._skipped)} that cannot be read.")
        lines += [f"  {reason}" for reason in self._skipped[:20]]
        if self._animated:
            lines.append(f"Of {self._animated} files with several frames only the first is used.")
        if not self._check_files:
            lines.append("The files were not decoded beforehand: a damaged one will stop the run when it is met.")
        return lines

    @override
    def teardown(self, stage: str | None = None) -> None:
        super().teardown(stage)
        if self._skipped:
            log.warning("%s: %d files that cannot be read were left out of this run", self.name, len(self._skipped))
