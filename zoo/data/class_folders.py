"""Finding labelled images on disk: split folders, class folders, and what is in them that is no image."""

import dataclasses
import hashlib
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from zoo.registry import suggest

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})
"""Compared in lower case; everything else in a class folder is foreign."""

_VALIDATION_FOLDERS = ("val", "valid", "validation")
_SYSTEM_NAMES = frozenset({"__macosx", "@eadir", "thumbs.db", "desktop.ini", "$recycle.bin", "lost+found"})


def is_litter(name: str) -> bool:
    """Return whether a name is hidden or made by an operating system: never a class, never an image.

    >>> [name for name in ("cat", ".ipynb_checkpoints", "._cat.jpg", "Thumbs.db") if not is_litter(name)]
    ['cat']
    """
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


@dataclasses.dataclass(frozen=True)
class ClassFolders:
    """The class folders of one split.

    Attributes:
        folder: Where they lie.
        names: Names of the class folders, sorted.
    """

    folder: Path
    names: tuple[str, ...]

    @classmethod
    def find(cls, folder: Path) -> "ClassFolders":
        """List the class folders, without looking into them.

        Raises:
            ValueError: There are none, or two whose names differ only in case or blanks.
        """
        names = tuple(visible_folders(folder))
        if not names:
            raise ValueError(f"{folder} has no class folders: expected {folder}/<class>/<image>")
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(fold(name), name)
            if other != name:
                raise ValueError(
                    f"{folder} has class folders {other!r} and {name!r}, which differ only in case or blanks"
                )
        return cls(folder, names)


@dataclasses.dataclass
class FoundImages:
    """Image files with their labels, and how much else lay among them.

    Attributes:
        paths: Image files; those of one class follow each other, sorted.
        labels: Label of each.
        foreign: Number of files that are hidden, made by the system or no image by their suffix.
    """

    paths: list[str] = dataclasses.field(default_factory=list)
    labels: list[int] = dataclasses.field(default_factory=list)
    foreign: int = 0


def fold(name: str) -> str:
    """Return a name without the differences that people overlook: case, outer blanks, Unicode composition."""
    return unicodedata.normalize("NFC", name).casefold().strip()


def normal_form(name: str) -> str:
    """Return a name in Unicode's composed form, so that it is the same whatever system wrote the folder."""
    return unicodedata.normalize("NFC", name)


def visible_folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder that are not litter, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not is_litter(entry.name))


def find_split_folders(root: Path) -> dict[str, Path]:
    """Return the split folders of ``root`` under the keys train, val, test; empty when it holds class folders.

    ``train`` counts as a split folder beside ``val`` (or ``valid``, ``validation``) or ``test``, or when it is alone.

    Raises:
        ValueError: ``root`` is missing, has two validation folders, or a class folder beside split folders.
    """
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: expected class folders, or train and val or test with class folders")
    names = visible_folders(root)
    validation = [name for name in _VALIDATION_FOLDERS if name in names]
    if "train" not in names or not (validation or "test" in names or names == ["train"]):
        return {}
    if len(validation) > 1:
        raise ValueError(f"{root} has more than one validation folder: {', '.join(validation)}")
    others = sorted(set(names) - {"train", "test", *validation})
    if others:
        raise ValueError(f"{root} has split folders and beside them {', '.join(others)}: move these out, or into train")
    folders = {"train": root / "train"}
    if validation:
        folders["val"] = root / validation[0]
    if "test" in names:
        folders["test"] = root / "test"
    return folders


def match_classes(found: ClassFolders, training: ClassFolders, labels: Mapping[str, int], split: str) -> dict[str, int]:
    """Return the label of each class folder of an evaluation split, by the name of the training folder.

    Args:
        found: The class folders of the split.
        training: Those of the training split.
        labels: Label of each training folder that is used; the others are left out.
        split: For messages.

    Raises:
        ValueError: A folder has no counterpart in the training split.
    """
    counterparts = {normal_form(name): name for name in training.names}
    matched = {}
    for name in found.names:
        counterpart = counterparts.get(normal_form(name))
        if counterpart is None:
            near = next((known for known in training.names if fold(known) == fold(name)), None)
            hint = f" Did you mean {near!r}?" if near else suggest(name, list(training.names))
            raise ValueError(
                f"{split} folder {found.folder} has class {name!r}, which the training images lack.{hint} "
                f"Training classes: {', '.join(training.names[:20])}"
            )
        if counterpart in labels:
            matched[name] = labels[counterpart]
    return matched


def find_images(folder: Path, labels: Mapping[str, int]) -> FoundImages:
    """Find the images of class folders, in sub-folders too.

    Args:
        folder: Holds the class folders.
        labels: Label of each class folder.
    """
    found = FoundImages()
    with os.scandir(folder) as entries:
        found.foreign += sum(entry.is_file() for entry in entries)
    for name, label in sorted(labels.items(), key=lambda item: item[1]):
        before = len(found.paths)
        for path in _walk(folder / name):
            # Only regular files: reading from a pipe would wait for ever.
            if is_litter(path.name) or path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_file():
                found.foreign += 1
            else:
                found.paths.append(str(path))
        found.labels += [label] * (len(found.paths) - before)
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, sorted; follows links to folders, each real folder once."""
    visited = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not is_litter(name))
        for name in sorted(files):
            yield Path(parent) / name


def path_keys(paths: Sequence[str], folder: Path) -> npt.NDArray[np.uint64]:
    """Return a number per image that depends only on its path below ``folder``: the start of the path's SHA-256."""
    relative = (normal_form(Path(path).relative_to(folder).as_posix()) for path in paths)
    digests = (hashlib.sha256(path.encode(errors="surrogateescape")).digest() for path in relative)
    return np.array([int.from_bytes(digest[:8], "big") for digest in digests], dtype=np.uint64)
