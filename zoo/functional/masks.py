"""Masks: booleans of shape (batch, heads, query_tokens, key_tokens), True where a query may look; an axis may be 1."""

import functools
import operator
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from zoo.functional.validation import check_count, check_positive_int

Alignment = Literal["last", "first"]
ALIGNMENTS = ("last", "first")


def padding_mask(lengths: Tensor, num_tokens: int) -> Tensor:
    """Hide the keys past the length of each sample.

    Args:
        lengths: Integers (batch,), each 0 to ``num_tokens``.
        num_tokens: Tokens with padding.

    Returns:
        (batch, 1, 1, num_tokens)

    Raises:
        ValueError: ``lengths`` is no vector of integers, or a length is out of range.

    >>> padding_mask(torch.tensor([1, 3]), 3).int().tolist()
    [[[[1, 0, 0]]], [[[1, 1, 1]]]]
    """
    check_positive_int("num_tokens", num_tokens)
    if lengths.ndim != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths ({lengths.dtype}, shape {tuple(lengths.shape)}) must be integers of shape (batch,)")
    if bool(((lengths < 0) | (lengths > num_tokens)).any()):
        raise ValueError(f"lengths ({lengths.tolist()}) must lie between 0 and num_tokens ({num_tokens})")
    return (torch.arange(num_tokens, device=lengths.device) < lengths[:, None])[:, None, None, :]


def query_positions(
    query_tokens: int, key_tokens: int, alignment: str, device: torch.device | str | None = None
) -> Tensor:
    """Return the position of each query among the keys: the last two of both stand side by side, or the first two."""
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment ({alignment!r}) must be one of {', '.join(ALIGNMENTS)}")
    offset = key_tokens - query_tokens if alignment == "last" else 0
    return torch.arange(query_tokens, device=device) + offset


def causal_mask(
    query_tokens: int,
    key_tokens: int | None = None,
    *,
    alignment: Alignment = "last",
    device: torch.device | str | None = None,
) -> Tensor:
    """Let each query look at its own position and those before.

    Args:
        query_tokens: At least 1.
        key_tokens: ``None`` for as many as queries.
        alignment: "last": the last query stands at the last key; "first": the first at the first.
        device: Where the mask is made.

    Returns:
        (1, 1, query_tokens, key_tokens)

    >>> causal_mask(2, 3).int().tolist()
    [[[[1, 1, 0], [1, 1, 1]]]]
    >>> causal_mask(2, 3, alignment="first").int().tolist()
    [[[[1, 0, 0], [1, 1, 0]]]]
    """
    return (_offsets(query_tokens, key_tokens, alignment, device) <= 0)[None, None]


def sliding_window_mask(
    query_tokens: int,
    key_tokens: int | None = None,
    *,
    window: int,
    alignment: Alignment = "last",
    device: torch.device | str | None = None,
) -> Tensor:
    """Let query i look at key j where ``|i - j| <= window``.

    Returns:
        (1, 1, query_tokens, key_tokens)

    >>> sliding_window_mask(4, window=1).int().tolist()
    [[[[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]]]
    """
    check_count("window", window)
    return (_offsets(query_tokens, key_tokens, alignment, device).abs() <= window)[None, None]


def dilated_mask(num_tokens: int, *, window: int, dilation: int, device: torch.device | str | None = None) -> Tensor:
    """Let each query look at ``window`` keys to either side, ``dilation`` apart, and at itself.

    Returns:
        (1, 1, num_tokens, num_tokens)

    >>> dilated_mask(5, window=1, dilation=2)[0, 0, 2].int().tolist()
    [1, 0, 1, 0, 1]
    """
    check_count("window", window)
    check_positive_int("dilation", dilation)
    offsets = _offsets(num_tokens, None, "last", device)
    return ((offsets.abs() <= window * dilation) & (offsets % dilation == 0))[None, None]


def strided_mask(num_tokens: int, *, stride: int, device: torch.device | str | None = None) -> Tensor:
    """Let each query look at all keys a multiple of ``stride`` away: the column of a grid of that width.

    Returns:
        (1, 1, num_tokens, num_tokens)

    >>> strided_mask(5, stride=3).int()[0, 0, 1].tolist()
    [0, 1, 0, 0, 1]
    """
    check_positive_int("stride", stride)
    return (_offsets(num_tokens, None, "last", device) % stride == 0)[None, None]


def global_mask(num_tokens: int, *, num_global: int, device: torch.device | str | None = None) -> Tensor:
    """Let the first ``num_global`` tokens look at all, and all look at them.

    Returns:
        (1, 1, num_tokens, num_tokens)

    >>> global_mask(3, num_global=1).int().tolist()
    [[[[1, 1, 1], [1, 0, 0], [1, 0, 0]]]]
    """
    check_positive_int("num_tokens", num_tokens)
    check_count("num_global", num_global)
    is_global = torch.arange(num_tokens, device=device) < num_global
    return (is_global[:, None] | is_global)[None, None]


def window_partition_mask(
    grid_size: Sequence[int],
    window_size: Sequence[int],
    *,
    shift: Sequence[int] = (0, 0),
    device: torch.device | str | None = None,
) -> Tensor:
    """Cut a grid into windows side by side, and let each token look at those of its own window.

    Args:
        grid_size: Rows and columns of the tokens, which stand row by row.
        window_size: Rows and columns of a window.
        shift: Row and column at which the first whole window begins.
        device: Where the mask is made.

    Returns:
        (1, 1, tokens, tokens)

    >>> window_partition_mask((1, 5), (1, 2), shift=(0, 1)).int()[0, 0].tolist()
    [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    """
    rows, columns = (
        (torch.arange(size, device=device) - first).div(width, rounding_mode="floor")
        for size, width, first in zip(grid_size, window_size, shift, strict=True)
    )
    row, column = rows.repeat_interleave(len(columns)), columns.repeat(len(rows))
    return ((row[:, None] == row) & (column[:, None] == column))[None, None]


def draw_key_blocks(num_blocks: int, num_random: int, seed: int, device: torch.device | str | None = None) -> Tensor:
    """Draw, for each block of queries, ``num_random`` different blocks of keys (all when there are fewer).

    The draw is a hash of seed, query block and key block: the same on every device and in compiled code.

    Returns:
        (num_blocks, num_random)
    """
    blocks = torch.arange(num_blocks, device=device)
    draws = blocks[:, None] * 0x9E3779B1 + blocks * 0x85EBCA77 + seed % 2**31 * 0xC2B2AE3D % 2**62
    for factor in (0x2C1B3C6D, 0x297A2D39):
        draws = (draws ^ (draws >> 15)) * factor % 2**62
    return (draws ^ (draws >> 31)).topk(min(num_random, num_blocks)).indices


def random_mask(
    num_tokens: int, *, num_random: int, seed: int, block_size: int = 1, device: torch.device | str | None = None
) -> Tensor:
    """Let each block of queries look at ``num_random`` blocks of keys, drawn from ``seed``.

    Returns:
        (1, 1, num_tokens, num_tokens)

    >>> mask = random_mask(6, num_random=2, seed=0)
    >>> mask.sum(-1).tolist(), torch.equal(mask, random_mask(6, num_random=2, seed=0))
    ([[[2, 2, 2, 2, 2, 2]]], True)
    """
    check_positive_int("num_tokens", num_tokens)
    check_count("num_random", num_random)
    check_positive_int("block_size", block_size)
    num_blocks = -(-num_tokens // block_size)
    blocks = torch.zeros(num_blocks, num_blocks, dtype=torch.bool, device=device)
    blocks = blocks.scatter(1, draw_key_blocks(num_blocks, num_random, seed, device), True)
    tokens = blocks.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
    return tokens[:num_tokens, :num_tokens][None, None]


def big_bird_mask(
    num_tokens: int,
    *,
    window: int,
    num_global: int,
    num_random: int,
    seed: int,
    block_size: int = 1,
    device: torch.device | str | None = None,
) -> Tensor:
    """Join a sliding window, global tokens and random blocks of keys.

    Returns:
        (1, 1, num_tokens, num_tokens)

    Source:
        Zaheer et al.: Big Bird: Transformers for Longer Sequences, NeurIPS 2020, https://arxiv.org/abs/2007.14062
    """
    return unite_masks(
        sliding_window_mask(num_tokens, window=window, device=device),
        global_mask(num_tokens, num_global=num_global, device=device),
        random_mask(num_tokens, num_random=num_random, seed=seed, block_size=block_size, device=device),
    )


def unite_masks(*masks: Tensor) -> Tensor:
    """Let a query look where any of the masks lets it.

    >>> unite_masks(sliding_window_mask(3, window=0), global_mask(3, num_global=1)).int()[0, 0].tolist()
    [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    """
    return functools.reduce(operator.or_, _checked(masks))


def intersect_masks(*masks: Tensor) -> Tensor:
    """Let a query look where every one of the masks lets it.

    >>> intersect_masks(causal_mask(3), padding_mask(torch.tensor([2]), 3)).int()[0, 0].tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """
    return functools.reduce(operator.and_, _checked(masks))


def _checked(masks: Sequence[Tensor]) -> Sequence[Tensor]:
    if not masks:
        raise ValueError("give one mask or more")
    for mask in masks:
        if mask.dtype != torch.bool or mask.ndim != 4:
            raise ValueError(
                f"a mask ({mask.dtype}, shape {tuple(mask.shape)}) must be boolean with the axes "
                "(batch, heads, query_tokens, key_tokens), each of them its size or 1"
            )
    return masks


def _offsets(query_tokens: int, key_tokens: int | None, alignment: str, device: torch.device | str | None) -> Tensor:
    """Return ``j - i`` for every query i and key j."""
    check_positive_int("query_tokens", query_tokens)
    key_tokens = query_tokens if key_tokens is None else check_positive_int("key_tokens", key_tokens)
    positions = query_positions(query_tokens, key_tokens, alignment, device)
    return torch.arange(key_tokens, device=device) - positions[:, None]
