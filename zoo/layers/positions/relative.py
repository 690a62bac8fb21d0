"""Relative position biases: a learned scalar per head and offset, added to the scores."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.functional.masks import Alignment, query_positions
from zoo.functional.validation import check_count, check_positive_int
from zoo.layers.positions.grid import check_grid_size


class RelativePositionBias1d(nn.Module):
    """A learned scalar per head and offset of a sequence; offsets beyond ``max_distance`` share that of the farthest.

    Args:
        num_heads: At least 1.
        max_distance: At least 0.

    Raises:
        ValueError: An argument is out of its range.

    >>> RelativePositionBias1d(2, max_distance=3)(5, 7).shape
    torch.Size([1, 2, 5, 7])

    Source:
        Shaw, Uszkoreit, Vaswani: Self-Attention with Relative Position Representations, NAACL 2018,
        https://arxiv.org/abs/1803.02155; as scalars: Raffel et al., https://arxiv.org/abs/1910.10683
    """

    def __init__(self, num_heads: int, *, max_distance: int) -> None:
        super().__init__()
        self.num_heads = check_positive_int("num_heads", num_heads)
        self.max_distance = check_count("max_distance", max_distance)
        self.table = nn.Parameter(torch.empty(num_heads, 2 * max_distance + 1))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, query_tokens: int, key_tokens: int | None = None, *, alignment: Alignment = "last") -> Tensor:
        """Return ``table[h, max_distance + j - i]`` for every query i and key j.

        Args:
            query_tokens: Number of queries.
            key_tokens: Number of keys; ``None`` for as many.
            alignment: Whether the last or the first query and key stand at the same position.

        Returns:
            (1, num_heads, query_tokens, key_tokens)
        """
        key_tokens = query_tokens if key_tokens is None else key_tokens
        positions = query_positions(query_tokens, key_tokens, alignment, self.table.device)
        offsets = torch.arange(key_tokens, device=self.table.device) - positions[:, None]
        return self.table[:, offsets.clamp(-self.max_distance, self.max_distance) + self.max_distance][None]


class RelativePositionBias2d(nn.Module):
    """A learned scalar per head and offset in rows and columns of a grid.

    For a grid of another size, the table is resized by bicubic interpolation, and so is one of another size when a
    state dict is loaded. Pairs with a prefix token have scalars
    of their own: from it, to it, and between two of them.

    Args:
        num_heads: At least 1.
        grid_size: Rows and columns of the grid that is learned.
        num_prefix_tokens: Tokens before the grid, at least 0.

    Raises:
        ValueError: An argument is out of its range.

    >>> RelativePositionBias2d(2, (2, 3), num_prefix_tokens=1)().shape
    torch.Size([1, 2, 7, 7])

    Source:
        Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021,
        https://arxiv.org/abs/2103.14030; prefix tokens: Bao et al.: BEiT, https://arxiv.org/abs/2106.08254
    """

    def __init__(self, num_heads: int, grid_size: Sequence[int], *, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self.num_heads = check_positive_int("num_heads", num_heads)
        self.grid_size = check_grid_size(grid_size)
        self.num_prefix_tokens = check_count("num_prefix_tokens", num_prefix_tokens)
        rows, columns = self.grid_size
        self.table = nn.Parameter(torch.empty(num_heads, 2 * rows - 1, 2 * columns - 1))
        nn.init.trunc_normal_(self.table, std=0.02)
        if num_prefix_tokens:
            self.prefix = nn.Parameter(torch.zeros(num_heads, 3))
        self.register_load_state_dict_pre_hook(_resize_loaded_table)

    def forward(self, grid_size: Sequence[int] | None = None) -> Tensor:
        """Return ``table[h, rows - 1 + dy, columns - 1 + dx]`` for every pair, key minus query.

        Args:
            grid_size: Rows and columns; ``None`` for those that are learned.

        Returns:
            (1, num_heads, tokens, tokens) with num_prefix_tokens + rows * columns tokens
        """
        rows, columns = self.grid_size if grid_size is None else check_grid_size(grid_size)
        size = (2 * rows - 1, 2 * columns - 1)
        table = _resize_table(self.table, size)
        place = torch.arange(rows * columns, device=table.device)
        row, column = place // columns, place % columns
        bias = table[:, row - row[:, None] + rows - 1, column - column[:, None] + columns - 1]
        if self.num_prefix_tokens:
            bias = self._with_prefix(bias)
        return bias[None]

    def _with_prefix(self, bias: Tensor) -> Tensor:
        tokens, prefix = bias.shape[-1], self.num_prefix_tokens
        from_prefix, to_prefix, between = self.prefix[:, :, None, None].unbind(1)
        above = torch.cat([between.expand(-1, prefix, prefix), from_prefix.expand(-1, prefix, tokens)], -1)
        below = torch.cat([to_prefix.expand(-1, tokens, prefix), bias], -1)
        return torch.cat([above, below], -2)


def _resize_table(table: Tensor, size: Sequence[int]) -> Tensor:
    """Resize (heads, row offsets, column offsets), in float32 at least; offset 0 stays in the middle."""
    if tuple(table.shape[1:]) == tuple(size):
        return table
    wide = table[None].to(torch.promote_types(table.dtype, torch.float32))
    return functional.interpolate(wide, size=tuple(size), mode="bicubic")[0].to(table.dtype)


def _resize_loaded_table(module: RelativePositionBias2d, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    loaded = state_dict.get(f"{prefix}table")
    if loaded is not None and loaded.ndim == 3 and len(loaded) == module.num_heads:
        state_dict[f"{prefix}table"] = _resize_table(loaded, module.table.shape[1:])
