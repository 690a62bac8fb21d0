"""Which images form which batch, in every epoch and on every process: orders, shards, loaders of tensors in memory."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override


class Batch(NamedTuple):
    """What a loader hands out.

    Attributes:
        images: uint8 (batch, channels, height, width) from the loader, float32 once prepared.
        labels: int64 (batch,).
        indices: int64 (batch,), the position of each image in its split.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


def derive_seed(*parts: int | str) -> int:
    """Return a number in 0..2^63-1 that depends on every part and on nothing else.

    >>> derive_seed("order", 0, 1) == derive_seed("order", 0, 1)
    True
    >>> derive_seed("order", 0, 1) == derive_seed("order", 1, 0)
    False
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def current_shard() -> tuple[int, int]:
    """Return this process's rank and the number of processes; (0, 1) outside a distributed run."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


class BatchSampler:
    """The batches of one split as lists of indices: a function of the epoch, the rank and the number of processes.

    Training (``shuffle=True``): one random order of all images per epoch, drawn from ``(shuffle_seed, epoch)``. Of
    ``world`` processes, the one of rank r takes every ``world``-th image from r on; all get equally many full batches,
    and the remainder sits out this epoch. Evaluation: the images in order, shared out the same way, nothing dropped
    and nothing repeated, so over all processes each image comes exactly once.

    Args:
        num_images: Images in the split.
        batch_size: Images per batch and process.
        shuffle: Whether this is for training.
        shuffle_seed: Seed of the order; only with ``shuffle``.
        shard: (rank, number of processes); ``None`` reads the distributed run at the time of use.

    Raises:
        ValueError: ``batch_size`` is below 1.

    >>> [batch.tolist() for batch in BatchSampler(5, 2, shuffle=False)]
    [[0, 1], [2, 3], [4]]
    >>> [batch.tolist() for batch in BatchSampler(5, 2, shuffle=False, shard=(1, 2))]
    [[1, 3]]
    """

    def __init__(
        self,
        num_images: int,
        batch_size: int,
        *,
        shuffle: bool,
        shuffle_seed: int = 0,
        shard: tuple[int, int] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch size ({batch_size}) must be at least 1")
        self.num_images = num_images
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.shuffle_seed = shuffle_seed
        self.epoch = 0
        self._shard = shard

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose batches come next."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of this process.

        Raises:
            ValueError: Too few images for one batch per process (training) or one image per process (evaluation).
        """
        rank, world = self._shard or current_shard()
        if self.shuffle:
            if self.num_images // world < self.batch_size:
                processes = "" if world == 1 else f" on each of {world} processes"
                raise ValueError(
                    f"{self.num_images} training images do not fill one batch of {self.batch_size}{processes}: "
                    f"batch_size must be at most {self.num_images // world}"
                )
            return self.num_images // world // self.batch_size
        if self.num_images < world:
            raise ValueError(f"{self.num_images} images are too few to evaluate on {world} processes")
        own = len(range(rank, self.num_images, world))
        return -(-own // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        rank, world = self._shard or current_shard()
        count = len(self)
        if self.shuffle:
            generator = torch.Generator().manual_seed(derive_seed("order", self.shuffle_seed, self.epoch))
            order = torch.randperm(self.num_images, generator=generator)
            own = order[rank::world][: count * self.batch_size]
        else:
            own = torch.arange(rank, self.num_images, world)
        return iter(own.split(self.batch_size))


class ResumableLoader:
    """A loader of :class:`Batch` that can continue in the middle of an epoch.

    The epoch is read from ``sampler`` when the first batch is asked for. ``state_dict`` says how many batches of which
    epoch were handed out; a loader given it skips those when that epoch is asked for, and only then.

    Args:
        sampler: Gives the indices of every batch.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self.sampler = sampler
        self.batch_sampler = sampler  # Lightning asks by either name
        self._served = {"epoch": 0, "batches": 0}
        self._resume: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.sampler.epoch
        start = 0
        if self._resume is not None:
            start = self._resume["batches"] if self._resume["epoch"] == epoch else 0
            self._resume = None
        remaining = list(self.sampler)[start:]
        for position, batch in enumerate(self._load(remaining, epoch), start):
            self._served = {"epoch": epoch, "batches": position + 1}
            yield batch

    def _load(self, batches: list[Tensor], epoch: int) -> Iterator[Batch]:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the number of its batches handed out so far."""
        return dict(self._served)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the batches that ``state`` counts."""
        self._resume = {"epoch": int(state["epoch"]), "batches": int(state["batches"])}
        self._served = dict(self._resume)

    def close(self) -> None:
        """Release what the loader holds; it can be iterated again."""


class TensorLoader(ResumableLoader):
    """Batches gathered from images in memory.

    Args:
        images: uint8 (images, height, width, channels): one image is one contiguous run of bytes, so a batch is
            gathered at memory speed, and handed out as a channels_last view.
        labels: int64 (images,).
        sampler: Gives the indices of every batch.
    """

    def __init__(self, images: Tensor, labels: Tensor, sampler: BatchSampler) -> None:
        super().__init__(sampler)
        self._images = images
        self._labels = labels

    @override
    def _load(self, batches: list[Tensor], epoch: int) -> Iterator[Batch]:
        for indices in batches:
            images = self._images.index_select(0, indices).permute(0, 3, 1, 2)
            yield Batch(images, self._labels.index_select(0, indices), indices)
