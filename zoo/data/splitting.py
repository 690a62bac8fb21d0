"""Holding images out by a fixed rule instead of chance: the same split in every run and on every machine."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.augmentation import uniform_draws
from zoo.data.batches import derive_seed


def split_stratified(
    labels: Tensor, keys: npt.NDArray[Any], fraction: float, class_names: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Divide images into two parts with the same share of every class, by fixed keys instead of chance.

    Of each class with n images, those with the ``round(fraction * n)`` smallest keys form the second part, but at least
    one image and at most n - 1.

    Args:
        labels: int64 (images,).
        keys: A number per image that does not change between runs.
        fraction: Share of the second part, between 0 and 1, both excluded.
        class_names: For messages.

    Returns:
        Indices of the first and of the second part, both ascending.

    Raises:
        ValueError: ``fraction`` out of range, or a class with a single image.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the share to hold out ({fraction}) must be between 0 and 1")
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label, name in enumerate(class_names):
        members = (labels == label).nonzero().squeeze(1)
        if len(members) == 1:
            raise ValueError(f"class {name!r} has 1 image, at least 2 are needed to hold one out for validation")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        order = np.argsort(keys[members.numpy()], kind="stable")[: max(count, 0)]
        held_out[members[torch.from_numpy(order)]] = True
    return (~held_out).nonzero().squeeze(1), held_out.nonzero().squeeze(1)


def image_keys(count: int, source: str) -> npt.NDArray[np.float32]:
    """Return a fixed pseudo-random number per image of an ordered source, for :func:`split_stratified`."""
    draws = uniform_draws(torch.arange(count), 1, derive_seed("split", source))
    return draws.squeeze(1).numpy()
