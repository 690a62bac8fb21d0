"""Grids of tokens: their sizes, the tokens that stand before them, and the precision of angles of places."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.functional.validation import check_positive_int


def check_grid_size(grid_size: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns as a tuple.

    Raises:
        ValueError: They are not two integers of at least 1.
    """
    if isinstance(grid_size, str) or not isinstance(grid_size, Sequence) or len(grid_size) != 2:
        raise ValueError(f"grid_size ({grid_size!r}) must be rows and columns")
    rows, columns = grid_size
    return check_positive_int("grid_size rows", rows), check_positive_int("grid_size columns", columns)


def check_grid_tokens(tokens: Tensor, embed_dim: int, num_prefix_tokens: int, grid_size: Sequence[int]) -> None:
    """Check that tokens are those of a grid, row by row, behind the prefix tokens.

    Raises:
        ValueError: Their number or width is another.
    """
    rows, columns = grid_size
    expected = num_prefix_tokens + rows * columns
    if tokens.ndim != 3 or tokens.shape[1:] != (expected, embed_dim):
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}, but must be (batch, {expected}, {embed_dim}): "
            f"{num_prefix_tokens} prefix tokens and a grid of {rows} x {columns}"
        )


def angle_dtype(device: torch.device | str | None) -> torch.dtype:
    """Return in what sines and cosines of places are computed: float64, which Apple's GPUs do not have."""
    return torch.float32 if device is not None and torch.device(device).type == "mps" else torch.float64
