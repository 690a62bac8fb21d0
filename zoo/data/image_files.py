"""Images on disk: checked once, then decoded by worker processes. Imports little, since every worker imports it."""

import dataclasses
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as transforms
from typing_extensions import override

from zoo.data.batches import Batch, BatchSampler, ResumableLoader
from zoo.preprocessing import Preprocessing, count_frames, open_image, resize_box

# After so many seconds without a batch it is looked whether the workers still live.
_POLL_S = 2.0
_checked: dict[tuple[str, int, int, int], "FileFacts"] = {}


@dataclasses.dataclass(frozen=True)
class FileFacts:
    """What decoding a file showed: why it cannot be read (``None`` if it can), and how many frames it has."""

    error: str | None
    frames: int


@dataclasses.dataclass(frozen=True)
class RandomCropFlip:
    """Cut a random part out of a training image, scale it to the input size, and mirror it.

    Args:
        smallest_crop: Least share of the image's area that is kept, above 0; 1 cuts as in evaluation.
        horizontal_flip: Mirror left to right half of the time.

    Raises:
        ValueError: ``smallest_crop`` is out of range.

    Source: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, https://arxiv.org/abs/1409.4842
    """

    smallest_crop: float = 0.25
    horizontal_flip: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.smallest_crop <= 1:
            raise ValueError(f"smallest_crop ({self.smallest_crop}) must be above 0 and at most 1")

    def __call__(self, image: Image.Image, preprocessing: Preprocessing, generator: np.random.Generator) -> Tensor:
        """Return uint8 (channels, height, width)."""
        if self.smallest_crop < 1:
            box = draw_box(image.width, image.height, self.smallest_crop, generator)
            image = resize_box(image, box, preprocessing.height, preprocessing.width, preprocessing.interpolation)
            pixels = transforms.pil_to_tensor(image)
        else:
            pixels = preprocessing.to_pixels(image)
        return pixels.flip(-1) if self.horizontal_flip and generator.random() < 0.5 else pixels

    def describe(self) -> str:
        """Say in one line what is done to a training image."""
        parts = []
        if self.smallest_crop < 1:
            parts.append(f"instead of the centre a random part of at least {self.smallest_crop:.0%} of the area")
        if self.horizontal_flip:
            parts.append("mirrored half of the time")
        return ", ".join(parts) or "unchanged"


def draw_box(width: int, height: int, smallest: float, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a part of an image: area uniform from ``smallest`` to 1, width to height log-uniform from 3/4 to 4/3.

    When ten draws do not fit into the image (it is very long, say), the largest centred part of such a shape.

    Returns:
        left, top, right, bottom in pixels.
    """
    for _ in range(10):
        area = width * height * generator.uniform(smallest, 1)
        shape = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        box_width, box_height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < box_width <= width and 0 < box_height <= height:
            left = int(generator.integers(0, width - box_width + 1))
            top = int(generator.integers(0, height - box_height + 1))
            return left, top, left + box_width, top + box_height
    box_width = max(min(width, round(height * 4 / 3)), 1)
    box_height = max(min(height, round(width * 4 / 3)), 1)
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def worker_context() -> BaseContext:
    """Return a way to start workers that copies no threads or locks of this process."""
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["__main__", __name__])
    return context


def default_num_workers() -> int:
    """Return the number of worker processes when none is given: a core each, 8 at most, shared by local ranks."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def check_images(paths: Sequence[str], channels: int, num_threads: int) -> list[FileFacts]:
    """Decode every file once; one decoded before in this process, and not changed since, is not read again.

    Args:
        paths: The files.
        channels: 1 or 3, as they will be used.
        num_threads: Threads that decode at once; decoding leaves Python's lock to others.
    """
    keys = [(path, status.st_size, status.st_mtime_ns, channels) for path in paths for status in [Path(path).stat()]]
    pending = [key for key in keys if key not in _checked]
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(max(num_threads, 1)) as pool:
        results = pool.map(lambda key: _check_file(key[0], channels), pending)
        shown = track(results, "checking images", len(pending), transient=True, disable=not sys.stderr.isatty())
        _checked.update(zip(pending, shown, strict=True))
    return [_checked[key] for key in keys]


def _check_file(path: str, channels: int) -> FileFacts:
    try:
        return FileFacts(None, count_frames(path, channels))
    except ValueError as error:
        return FileFacts(str(error), 0)


class ImageFiles(Dataset[Tensor | str]):
    """Decoded images for workers: the item (index, epoch) is uint8 (channels, height, width), or why there is none.

    Args:
        paths: The files.
        preprocessing: Gives size, channels and background.
        augmentation: What training does; ``None`` for evaluation.
        shuffle_seed: The draws of an image depend on this, the epoch and its index, not on the worker.
    """

    def __init__(
        self,
        paths: Sequence[str],
        preprocessing: Preprocessing,
        augmentation: RandomCropFlip | None = None,
        shuffle_seed: int = 0,
    ) -> None:
        self._paths = paths
        self._preprocessing = preprocessing
        self._augmentation = augmentation
        self._shuffle_seed = shuffle_seed

    def __getitem__(self, item: tuple[int, int]) -> Tensor | str:
        index, epoch = item
        try:
            image = open_image(self._paths[index], self._preprocessing.channels, self._preprocessing.background)
        except ValueError as error:
            return str(error)
        if self._augmentation is None:
            return self._preprocessing.to_pixels(image)
        generator = np.random.default_rng([self._shuffle_seed, epoch, index])
        return self._augmentation(image, self._preprocessing, generator)


def stack_images(items: list[Tensor | str]) -> Tensor | str:
    """Return a batch of images, or the first reason why one of them is missing."""
    images = [item for item in items if isinstance(item, Tensor)]
    if len(images) < len(items):
        return next(item for item in items if isinstance(item, str))
    return torch.stack(images)


def end_with_parent(_worker: int) -> None:
    """Let this worker end when the process that started it does, however that ends.

    A worker of a fork server would wait for the server and the server for it. See :class:`torch.utils.data.DataLoader`,
    ``worker_init_fn``.
    """
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Feed:
    """The items of the batches to come, in the form a DataLoader wants a batch sampler."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class FileLoader(ResumableLoader):
    """Batches decoded by worker processes, in the order of the sampler.

    Args:
        files: What the workers decode.
        labels: int64 (images,).
        sampler: Gives the indices of every batch.
        num_workers: Processes; 0 decodes in this one.
        keep_workers: Keep them from one epoch to the next.
        timeout_s: Longest wait for a batch, in seconds, before a stuck worker is reported.
    """

    def __init__(
        self,
        files: ImageFiles,
        labels: Tensor,
        sampler: BatchSampler,
        *,
        num_workers: int,
        keep_workers: bool,
        timeout_s: float,
    ) -> None:
        super().__init__(sampler)
        self._labels = labels
        self._timeout_s = timeout_s
        self._feed = _Feed()
        parallel = num_workers > 0
        self._loader: DataLoader[Any] = DataLoader(
            files,
            batch_sampler=self._feed,
            num_workers=num_workers,
            collate_fn=stack_images,
            worker_init_fn=end_with_parent,
            persistent_workers=parallel and keep_workers,
            timeout=min(_POLL_S, timeout_s) if parallel else 0,
            multiprocessing_context=worker_context() if parallel else None,
            pin_memory=torch.cuda.is_available(),
            # Its own generator: otherwise every pass would take a number from the global one.
            generator=torch.Generator(),
        )

    @override
    def _load(self, batches: list[Tensor], epoch: int) -> Iterator[Batch]:
        self._feed.batches = [[(index, epoch) for index in batch.tolist()] for batch in batches]
        iterator = iter(self._loader)
        try:
            for indices in batches:
                images = self._next(iterator)
                if isinstance(images, str):
                    raise ValueError(images)
                yield Batch(images, self._labels[indices], indices)
        finally:
            if not self._loader.persistent_workers:
                _end_workers(iterator)

    def _next(self, iterator: Iterator[Tensor | str]) -> Tensor | str:
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return next(iterator)
            except RuntimeError as error:
                # Raised when a worker has died, or has been silent for a moment; then it is asked again.
                if "timed out" in str(error) and time.monotonic() < deadline:
                    continue
                self.close()
                _end_workers(iterator)
                raise RuntimeError(
                    f"a worker process that decodes images died or gave no batch within {self._timeout_s:g} s "
                    f"({error}): a file on a slow or lost disk, or too little memory for "
                    f"{self._loader.num_workers} workers"
                ) from error

    @override
    def close(self) -> None:
        _end_workers(self._loader._iterator)
        self._loader._iterator = None


def _end_workers(iterator: object) -> None:
    # Dropping the iterator ends its workers too, but only when Python collects it.
    shutdown = getattr(iterator, "_shutdown_workers", None)
    if shutdown is not None:
        shutdown()
