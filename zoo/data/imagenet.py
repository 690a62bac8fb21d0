"""ImageNet, all of it or a subset, as class folders named by WordNet id or in plain words."""

import functools
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Literal

from typing_extensions import override

from zoo.data.image_folder import ImageFolder, OnCorrupt
from zoo.registry import DATASETS, suggest


@functools.cache
def read_class_table() -> dict[str, str]:
    """Return the readable name of each of the 1,000 WordNet ids, in the order of the usual class numbers.

    >>> list(read_class_table().items())[217]
    ('n02102040', 'english_springer')
    """
    text = (resources.files("zoo.data") / "imagenet_classes.txt").read_text(encoding="utf-8")
    table = {}
    for line in text.splitlines():
        wordnet_id, name = line.split()
        table[wordnet_id] = name
    return table


def readable_name(name: str) -> str:
    """Return the class's name in words, for a WordNet id or a name however it is written; others as they are.

    >>> readable_name("n02102040"), readable_name("English springer"), readable_name("my cat")
    ('english_springer', 'english_springer', 'my cat')
    """
    table = read_class_table()
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"['.]", "", name.lower())).strip("_")
    return table.get(name) or (words if words in table.values() else name)


@DATASETS.register("imagenet")
class ImageNet(ImageFolder):
    """ImageNet photographs in class folders, with the usual transforms: short side 256, centre 224, random crops.

    Folders may be named by WordNet id (``n02102040``) or in words (``english_springer``); classes are called by words
    either way, and their order is that of the usual class numbers. Everything else is as in
    :class:`~zoo.data.image_folder.ImageFolder`; in particular the official validation folder is the test set, and the
    validation split is held out of the training images.

    Args:
        root: Folder with ``train`` and ``val``; ``None`` is ``imagenet`` in ``ZOO_DATA``, else in ``data``.
        classes: The subset to take, by folder name, WordNet id or words, in the order of the labels; ``None`` is all.
        image_size: Height and width of the input of the net.
        resize: Short side in pixels before the centre is cut out, at evaluation; ``None`` takes 8/7 of ``image_size``.
        channels: 3 for RGB, 1 for greyscale.
        background: Colour behind transparent pixels, a name or ``#rrggbb``.
        smallest_crop: Least share of the area of a training image that a random crop keeps, above 0; 1 for no crops.
        horizontal_flip: Mirror training images half of the time.
        validation_fraction: Share of the training images held out; ``None`` is 0.1. Not with its own folder.
        on_corrupt: ``"raise"`` names damaged files and stops, ``"skip"`` leaves them out and counts them.
        check_files: Decode every file once before the first epoch.
        num_workers: Processes that decode; ``None`` is one per core, 8 at most; 0 decodes in the main process.
        worker_timeout_s: Longest wait for a batch before a stuck worker is reported, in seconds.
        batch_size: Training images per step and process.
        eval_batch_size: Validation and test images per step and process.
        shuffle_seed: Seed of order and augmentation.
        class_names: Order of classes that the labels must follow; ``None`` takes the own order.

    Raises:
        ValueError: A class is not there, or as in :class:`~zoo.data.image_folder.ImageFolder`.

    Source: Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge", IJCV 2015,
    https://arxiv.org/abs/1409.0575
    """

    registered_name = "imagenet"

    def __init__(
        self,
        *,
        root: str | None = None,
        classes: list[str] | None = None,
        image_size: int = 224,
        resize: int | None = None,
        channels: Literal[1, 3] = 3,
        background: str = "white",
        smallest_crop: float = 0.08,
        horizontal_flip: bool = True,
        validation_fraction: float | None = None,
        on_corrupt: OnCorrupt = "raise",
        check_files: bool = True,
        num_workers: int | None = None,
        worker_timeout_s: int = 120,
        batch_size: int = 64,
        eval_batch_size: int = 128,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self._demanded = classes
        super().__init__(
            root=root or str(Path(os.environ.get("ZOO_DATA") or "data") / "imagenet"),
            image_size=image_size,
            resize=resize,
            channels=channels,
            background=background,
            smallest_crop=smallest_crop,
            horizontal_flip=horizontal_flip,
            validation_fraction=validation_fraction,
            on_corrupt=on_corrupt,
            check_files=check_files,
            num_workers=num_workers,
            worker_timeout_s=worker_timeout_s,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            class_names=None if class_names is None else [readable_name(name) for name in class_names],
        )

    @override
    def choose_classes(self, folders: Sequence[str]) -> dict[str, str]:
        folder_of_class: dict[str, str] = {}
        for folder in folders:
            name = readable_name(folder)
            other = folder_of_class.setdefault(name, folder)
            if other != folder:
                raise ValueError(f"folders {other!r} and {folder!r} are the same class, {name}")
        if self._demanded is None:
            position = {name: number for number, name in enumerate(read_class_table().values())}
            names = sorted(folder_of_class, key=lambda name: (position.get(name, len(position)), name))
            return {folder_of_class[name]: name for name in names}
        chosen: dict[str, str] = {}
        for demanded in self._demanded:
            name = readable_name(demanded)
            if name not in folder_of_class:
                near = suggest(name, list(folder_of_class))
                raise ValueError(
                    f"class {demanded!r} has no folder in {self.root}.{near} There are {len(folders)} others"
                )
            if folder_of_class[name] in chosen:
                raise ValueError(f"class {demanded!r} is asked for twice")
            chosen[folder_of_class[name]] = name
        return chosen
