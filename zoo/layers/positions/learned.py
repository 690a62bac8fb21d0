"""Learned positions, added to the tokens; the grid is resized to that of the image."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.functional.validation import check_count, check_positive_int
from zoo.layers.positions.grid import check_grid_size, check_grid_tokens


def resize_grid(grid: Tensor, grid_size: Sequence[int]) -> Tensor:
    """Resize a grid of vectors by antialiased bicubic interpolation, in float32.

    Args:
        grid: (1, rows, columns, embed_dim)
        grid_size: New rows and columns.

    Returns:
        (1, *grid_size, embed_dim), of the dtype of ``grid``; ``grid`` itself where the size is the same

    >>> resize_grid(torch.ones(1, 2, 8, 3), (4, 4)).shape
    torch.Size([1, 4, 4, 3])
    """
    size = check_grid_size(grid_size)
    if tuple(grid.shape[1:3]) == size:
        return grid
    channels_first = grid.permute(0, 3, 1, 2).to(torch.promote_types(grid.dtype, torch.float32))
    resized = functional.interpolate(channels_first, size=size, mode="bicubic", antialias=True)
    return resized.permute(0, 2, 3, 1).to(grid.dtype)


def split_positions(
    positions: Tensor, *, num_prefix_tokens: int | None = None, grid_size: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Cut the flat positions of others into those of the prefix tokens and a grid.

    What is not told is found where there is one way: without ``grid_size`` the grid is square, and without
    ``num_prefix_tokens`` there is no prefix token, or one.

    Args:
        positions: (1, prefix + rows * columns, embed_dim), the prefix first.
        num_prefix_tokens: At least 0.
        grid_size: Rows and columns.

    Returns:
        (1, prefix, embed_dim) and (1, rows, columns, embed_dim)

    Raises:
        ValueError: The number of positions does not fit, or fits no square.

    >>> prefix, grid = split_positions(torch.zeros(1, 197, 8))
    >>> prefix.shape, grid.shape
    (torch.Size([1, 1, 8]), torch.Size([1, 14, 14, 8]))
    """
    if positions.ndim != 3 or positions.shape[0] != 1:
        raise ValueError(f"positions has shape {tuple(positions.shape)}, but must be (1, tokens, embed_dim)")
    count = positions.shape[1]
    told = f"num_prefix_tokens {num_prefix_tokens}, grid_size {grid_size}"
    if grid_size is not None:
        rows, columns = check_grid_size(grid_size)
        prefix = count - rows * columns if num_prefix_tokens is None else num_prefix_tokens
        if prefix < 0 or prefix + rows * columns != count:
            raise ValueError(f"{count} positions are not those of {told}")
    else:
        candidates = [0, 1] if num_prefix_tokens is None else [check_count("num_prefix_tokens", num_prefix_tokens)]
        squares = [prefix for prefix in candidates if prefix < count and _is_square(count - prefix)]
        if len(squares) != 1:
            ways = "more than one way" if squares else "no way"
            raise ValueError(f"{count} positions are, in {ways}, a square grid behind prefix tokens; {told}: tell both")
        (prefix,) = squares
        rows = columns = math.isqrt(count - prefix)
    return positions[:, :prefix], positions[:, prefix:].unflatten(1, (rows, columns))


def _is_square(count: int) -> bool:
    return math.isqrt(count) ** 2 == count


class LearnedPositions(nn.Module):
    """A learned vector for each place of a grid and each token before it.

    The grid is kept as one, (1, rows, columns, embed_dim), so that one of another shape is known as such, with the
    same number of tokens too: it is resized for images of another size, and when a state dict is loaded. Prefix tokens
    are apart and never resized.

    Args:
        embed_dim: Width of the tokens, at least 1.
        grid_size: Rows and columns of the grid that is learned.
        num_prefix_tokens: Tokens before the grid, at least 0.

    Shape:
        (batch, num_prefix_tokens + rows * columns, embed_dim), kept

    Raises:
        ValueError: An argument is out of its range.

    >>> positions = LearnedPositions(8, grid_size=(2, 3), num_prefix_tokens=1)
    >>> positions(torch.zeros(2, 21, 8), grid_size=(4, 5)).shape
    torch.Size([2, 21, 8])
    """

    def __init__(self, embed_dim: int, *, grid_size: Sequence[int], num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self.embed_dim = check_positive_int("embed_dim", embed_dim)
        self.num_prefix_tokens = check_count("num_prefix_tokens", num_prefix_tokens)
        self.grid = nn.Parameter(torch.empty(1, *check_grid_size(grid_size), embed_dim))
        nn.init.trunc_normal_(self.grid, std=0.02)
        if num_prefix_tokens:
            self.prefix = nn.Parameter(torch.empty(1, num_prefix_tokens, embed_dim))
            nn.init.trunc_normal_(self.prefix, std=0.02)
        self.register_load_state_dict_pre_hook(_resize_loaded_grid)

    def forward(self, tokens: Tensor, grid_size: Sequence[int] | None = None) -> Tensor:
        """Return the tokens with their positions added.

        Args:
            tokens: (batch, num_prefix_tokens + rows * columns, embed_dim)
            grid_size: Rows and columns; ``None`` for those that are learned.
        """
        size = tuple(self.grid.shape[1:3]) if grid_size is None else check_grid_size(grid_size)
        check_grid_tokens(tokens, self.embed_dim, self.num_prefix_tokens, size)
        positions = resize_grid(self.grid, size).flatten(1, 2)
        if self.num_prefix_tokens:
            positions = torch.cat([self.prefix, positions], 1)
        return tokens + positions.to(tokens.dtype)


def _resize_loaded_grid(module: LearnedPositions, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    loaded = state_dict.get(f"{prefix}grid")
    if loaded is not None and loaded.ndim == 4 and loaded.shape[::3] == module.grid.shape[::3]:
        state_dict[f"{prefix}grid"] = resize_grid(loaded, module.grid.shape[1:3])
