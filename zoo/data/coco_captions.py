"""Captions of one's own images: a folder of images and a JSON file in the layout of COCO."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from typing_extensions import override

from zoo.data.caption_module import CaptionDataModule, CaptionedImages
from zoo.data.class_folders import path_keys
from zoo.data.image_files import check_images, default_num_workers
from zoo.data.image_folder import FileSet
from zoo.data.split_module import Split
from zoo.data.splitting import split_stratified
from zoo.preprocessing import PRESETS, Preprocessing
from zoo.registry import CAPTION_DATASETS

_SHOWN = 20


class CaptionedFiles(NamedTuple):
    """What a file of captions says, in its order.

    Attributes:
        files: Names of the images that have captions.
        captions: The captions of each.
        without_caption: How many images the file names and says nothing of.
    """

    files: list[str]
    captions: list[list[str]]
    without_caption: int


@CAPTION_DATASETS.register("coco_captions")
class CocoCaptions(CaptionDataModule):
    """Images of a folder with captions from a JSON file in the layout of COCO, any number of captions each.

    The file holds ``{"images": [{"id": 1, "file_name": "a.jpg"}, ...], "annotations": [{"image_id": 1, "caption":
    "A dog."}, ...]}``; what else is in it is not read. Names are relative to ``root``. Words are lower-cased and cut at
    blanks and punctuation; the vocabulary is that of the training captions alone. Images without a caption are left out
    and counted.

    ``test_captions`` is the test set where it is given; else ``test_fraction`` of the images is. The validation images
    are held out of the others, both by a hash of the name, the same on every machine and in every run. Training images
    are not mirrored, since captions speak of left and right.

    Args:
        root: Folder of the images.
        captions: The JSON file.
        test_captions: A JSON file of test images; ``None`` holds some out.
        test_root: Folder of the test images; ``None`` for ``root``. Only with ``test_captions``.
        image_size: Height and width of the input of the net.
        keep_aspect: Cut out the centre of an image that is not square; otherwise the image is squeezed into a square.
        max_words: Longest caption; words past it are cut off.
        min_word_count: How often a word must occur in the training captions to be in the vocabulary.
        validation_fraction: Share of the images held out for validation, between 0 and 1.
        test_fraction: Share held out for the test; ``None`` is 0.1. Not with ``test_captions``.
        on_missing: ``"raise"`` names files that are not there and stops, ``"skip"`` leaves them out and counts them.
        check_files: Decode every file once before the first epoch.
        num_workers: Processes that decode; ``None`` is one per core, 8 at most; 0 decodes in the main process.
        worker_timeout_s: Longest wait for a batch before a stuck worker is reported, in seconds.
        batch_size: Training images per step and process.
        eval_batch_size: Images of other splits per step and process.
        shuffle_seed: Seed of the order, and of the caption that an epoch learns from.
        class_names: The vocabulary, as a weight card gives it; ``None`` collects it from the training captions.

    Raises:
        ValueError: An option is out of its range or would have no effect, or a file is not as described.
    """

    def __init__(
        self,
        *,
        root: str,
        captions: str,
        test_captions: str | None = None,
        test_root: str | None = None,
        image_size: int = 128,
        keep_aspect: bool = True,
        max_words: int = 20,
        min_word_count: int = 2,
        validation_fraction: float = 0.1,
        test_fraction: float | None = None,
        on_missing: Literal["raise", "skip"] = "raise",
        check_files: bool = True,
        num_workers: int | None = None,
        worker_timeout_s: int = 120,
        batch_size: int = 64,
        eval_batch_size: int = 128,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if on_missing not in ("raise", "skip"):
            raise ValueError(f"on_missing {on_missing!r} must be 'raise' or 'skip'")
        for name, value in (("validation_fraction", validation_fraction), ("test_fraction", test_fraction)):
            if value is not None and not 0 < value < 1:
                raise ValueError(f"{name} ({value}) must be between 0 and 1")
        if test_captions is not None and test_fraction is not None:
            raise ValueError(f"test_fraction ({test_fraction}) has no effect: {test_captions} is the test set")
        if test_captions is None and test_root is not None:
            raise ValueError(f"test_root ({test_root}) has no effect without test_captions")
        if num_workers is not None and num_workers < 0:
            raise ValueError(f"num_workers ({num_workers}) must be at least 0")
        if worker_timeout_s < 1:
            raise ValueError(f"worker_timeout_s ({worker_timeout_s}) must be at least 1")
        self.root = Path(root).expanduser()
        self.test_root = self.root if test_root is None else Path(test_root).expanduser()
        self.num_workers = default_num_workers() if num_workers is None else num_workers
        self.worker_timeout_s = worker_timeout_s
        self.file_augmentation = None
        self._captions = Path(captions).expanduser()
        self._test_captions = None if test_captions is None else Path(test_captions).expanduser()
        self._validation_fraction = validation_fraction
        self._test_fraction = 0.1 if test_fraction is None else test_fraction
        self._on_missing = on_missing
        self._check_files = check_files
        self._missing = 0
        self._without_caption = 0
        preset = PRESETS["imagenet_224"]
        super().__init__(
            name="coco_captions",
            preprocessing=Preprocessing(
                image_size,
                image_size,
                mean=preset.mean,
                std=preset.std,
                resize=round(image_size * 8 / 7) if keep_aspect else None,
            ),
            max_words=max_words,
            min_word_count=min_word_count,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            demanded_words=class_names,
        )

    @override
    def read_splits(self) -> dict[Split, CaptionedImages]:
        own = self._read_file(self._captions, self.root)
        needed = 2 if self._test_captions else 3
        if len(own.files) < needed:
            raise ValueError(f"{self._captions} has captions of {len(own.files)} images, at least {needed} are needed")
        remaining = torch.arange(len(own.files))
        parts: dict[Split, CaptionedImages] = {}
        if self._test_captions is not None:
            test = self._read_file(self._test_captions, self.test_root)
            parts["test"] = self._select(test, self.test_root, torch.arange(len(test.files)))
        else:
            remaining, held_out = self._hold_out(own, remaining, self._test_fraction)
            parts["test"] = self._select(own, self.root, held_out)
        remaining, held_out = self._hold_out(own, remaining, self._validation_fraction)
        parts["val"] = self._select(own, self.root, held_out)
        parts["train"] = self._select(own, self.root, remaining)
        return {split: parts[split] for split in ("train", "val", "test")}

    def _read_file(self, path: Path, root: Path) -> CaptionedFiles:
        """Read a file of captions and look for its images."""
        found = read_captions(path)
        self._without_caption += found.without_caption
        is_there = [(root / name).is_file() for name in found.files]
        missing = [name for name, there in zip(found.files, is_there, strict=True) if not there]
        if missing and self._on_missing == "raise":
            raise ValueError(
                f"{len(missing)} of {len(found.files)} images of {path} are not in {root} (on_missing 'skip' would "
                f"leave them out): {', '.join(missing[:_SHOWN])}{', ...' if len(missing) > _SHOWN else ''}"
            )
        self._missing += len(missing)
        kept = [place for place, there in enumerate(is_there) if there]
        files = [found.files[place] for place in kept]
        if self._check_files:
            facts = check_images([str(root / name) for name in files], self.preprocessing.channels, self.num_workers)
            errors = [fact.error for fact in facts if fact.error is not None]
            if errors:
                listed = "\n  ".join(errors[:_SHOWN])
                raise ValueError(f"{len(errors)} images of {path} cannot be read:\n  {listed}")
        return CaptionedFiles(files, [found.captions[place] for place in kept], found.without_caption)

    def _hold_out(
        self, own: CaptionedFiles, remaining: torch.Tensor, fraction: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        paths = [str(self.root / own.files[index]) for index in remaining.tolist()]
        one_class = torch.zeros(len(paths), dtype=torch.int64)
        kept, held_out = split_stratified(one_class, path_keys(paths, self.root), fraction, ["images"])
        return remaining[kept], remaining[held_out]

    def _select(self, found: CaptionedFiles, root: Path, indices: torch.Tensor) -> CaptionedImages:
        places = indices.tolist()
        paths = [str(root / found.files[place]) for place in places]
        images = FileSet(paths, torch.zeros(len(places), dtype=torch.int64), root, self)
        return CaptionedImages(images, [found.captions[place] for place in places])

    @override
    def describe_source(self) -> list[str]:
        lines = [f"Read from {self.root} and {self._captions} with {self.num_workers} worker processes."]
        by_hash = "by a hash of the name, the same in every run"
        if self._test_captions is None:
            lines.append(f"Test: {self._test_fraction:.0%} of the images, {by_hash}.")
        else:
            lines.append(f"Test: {self._test_captions}, images in {self.test_root}.")
        lines.append(f"Validation: {self._validation_fraction:.0%} of the others, {by_hash}.")
        lines.append(f"Left out: {self._without_caption} images without a caption, {self._missing} that are not there.")
        return lines


def read_captions(path: Path) -> CaptionedFiles:
    """Read a JSON file in the layout of COCO; its images are not looked for.

    Raises:
        ValueError: The file is missing, no JSON or not in that layout; the message names the first offending entry.
    """
    images, annotations = _load(path)
    names: dict[Any, str] = {}
    for image in images:
        name, identity = _entry(path, "images", image, "file_name", str), _entry(path, "images", image, "id", int | str)
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{path}: file_name {name!r} must be relative to the folder of images, and inside it")
        if identity in names:
            raise ValueError(f"{path}: two images have the id {identity!r}: {names[identity]}, {name}")
        names[identity] = name
    if len(set(names.values())) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names.values() if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{path}: the file {twice} is listed twice")
    captions: dict[Any, list[str]] = {}
    for annotation in annotations:
        identity = _entry(path, "annotations", annotation, "image_id", int | str)
        caption = _entry(path, "annotations", annotation, "caption", str)
        if identity not in names:
            raise ValueError(
                f"{path}: a caption ({caption[:60]!r}) is of image_id {identity!r}, which is no image's id"
            )
        captions.setdefault(identity, []).append(caption)
    captioned = [identity for identity in names if identity in captions]
    return CaptionedFiles(
        [names[identity] for identity in captioned],
        [captions[identity] for identity in captioned],
        len(names) - len(captioned),
    )


def _load(path: Path) -> tuple[list[Any], list[Any]]:
    if not path.is_file():
        raise ValueError(f"there is no file of captions {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    sections = content if isinstance(content, dict) else {}
    images, annotations = sections.get("images"), sections.get("annotations")
    if not isinstance(images, list) or not isinstance(annotations, list):
        raise ValueError(f"{path} must hold the lists 'images' and 'annotations', as COCO's files of captions do")
    return images, annotations


def _entry(path: Path, section: str, record: Any, key: str, kind: Any) -> Any:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{path}: an entry of '{section}' has no {key}: {str(record)[:100]}")
    return value
