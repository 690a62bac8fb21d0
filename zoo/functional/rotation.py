"""Rotary positions: pairs of columns of queries and keys turned by angles that grow with the position."""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Cosine and sine of the angle of each token and pair of columns, each (tokens, head_dim / 2)."""

    cosine: Tensor
    sine: Tensor


def rotate(tensor: Tensor, rotation: Rotation) -> Tensor:
    """Turn columns 2i and 2i + 1 of each token by its angle i: ``(a cos - b sin, a sin + b cos)``.

    Computed in the dtype of the angles or that of the tensor, whichever is wider.

    Args:
        tensor: (batch, heads, tokens, head_dim)
        rotation: The angles.

    Returns:
        Shape and dtype of ``tensor``.

    Raises:
        ValueError: The rotation was made for other tokens or another head_dim.

    >>> quarter_turn = Rotation(torch.zeros(1, 1), torch.ones(1, 1))
    >>> rotate(torch.tensor([[[[3.0, 4.0]]]]), quarter_turn).flatten().tolist()
    [-4.0, 3.0]
    """
    tokens, head_dim = tensor.shape[-2:]
    if rotation.cosine.shape != (tokens, head_dim / 2):
        made_for, pairs = rotation.cosine.shape
        raise ValueError(
            f"the rotation is made for {made_for} tokens and head_dim {2 * pairs}, not for {tokens} and {head_dim}"
        )
    first, second = tensor[..., 0::2], tensor[..., 1::2]
    turned = (
        first * rotation.cosine - second * rotation.sine,
        first * rotation.sine + second * rotation.cosine,
    )
    return torch.stack(turned, -1).flatten(-2).to(tensor.dtype)
