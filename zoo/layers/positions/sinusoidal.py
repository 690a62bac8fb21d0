"""Fixed positions of sines and cosines, added to the tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.functional.validation import check_count, check_positive_int
from zoo.layers.positions.grid import angle_dtype, check_grid_size, check_grid_tokens


def sinusoidal_table(
    num_positions: int, embed_dim: int, *, base: float = 10_000.0, device: torch.device | str | None = None
) -> Tensor:
    """Return ``sin(pos / base^(2i/d))`` in column 2i and the cosine of the same in column 2i + 1.

    Args:
        num_positions: Positions 0, 1, ...
        embed_dim: d, even.
        base: How much slower the last pair of columns turns than the first, nearly.
        device: Where the table is made.

    Returns:
        (num_positions, embed_dim) in float32, computed in float64 where the device has it

    Raises:
        ValueError: ``embed_dim`` is odd.

    >>> sinusoidal_table(2, 4).tolist()[0]
    [0.0, 1.0, 0.0, 1.0]

    Source:
        Vaswani et al.: Attention Is All You Need, NeurIPS 2017, https://arxiv.org/abs/1706.03762, section 3.5
    """
    if check_positive_int("embed_dim", embed_dim) % 2:
        raise ValueError(f"embed_dim ({embed_dim}) must be even: half sines, half cosines")
    positions = torch.arange(num_positions, device=device)
    exponents = torch.arange(0, embed_dim, 2, dtype=angle_dtype(device), device=device) / embed_dim
    angles = positions[:, None] / base**exponents
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def sinusoidal_table_2d(
    grid_size: Sequence[int], embed_dim: int, *, base: float = 10_000.0, device: torch.device | str | None = None
) -> Tensor:
    """Return the table of the row in the first half of the columns and that of the column in the second.

    Returns:
        (rows * columns, embed_dim) in float32, row by row

    Raises:
        ValueError: ``embed_dim`` is no multiple of 4.
    """
    rows, columns = check_grid_size(grid_size)
    if check_positive_int("embed_dim", embed_dim) % 4:
        raise ValueError(f"embed_dim ({embed_dim}) must be a multiple of 4: sines and cosines of row and column")
    of_row = sinusoidal_table(rows, embed_dim // 2, base=base, device=device)
    of_column = sinusoidal_table(columns, embed_dim // 2, base=base, device=device)
    both = [of_row[:, None].expand(-1, columns, -1), of_column.expand(rows, -1, -1)]
    return torch.cat(both, -1).flatten(0, 1)


class SinusoidalPositions1d(nn.Module):
    """Adds :func:`sinusoidal_table` to a sequence of any length.

    Args:
        embed_dim: Width of the tokens, even.

    Shape:
        (batch, tokens, embed_dim), kept
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        sinusoidal_table(1, embed_dim)
        self.embed_dim = embed_dim

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens with their positions added."""
        if tokens.ndim != 3 or tokens.shape[-1] != self.embed_dim:
            raise ValueError(f"tokens has shape {tuple(tokens.shape)}, but must be (batch, tokens, {self.embed_dim})")
        return tokens + sinusoidal_table(tokens.shape[1], self.embed_dim, device=tokens.device).to(tokens.dtype)


class SinusoidalPositions2d(nn.Module):
    """Adds :func:`sinusoidal_table_2d` to the tokens of a grid of any size; tokens before it are left as they are.

    Args:
        embed_dim: Width of the tokens, a multiple of 4.
        num_prefix_tokens: Tokens before the grid, at least 0.

    Shape:
        (batch, num_prefix_tokens + rows * columns, embed_dim), kept
    """

    def __init__(self, embed_dim: int, *, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        sinusoidal_table_2d((1, 1), embed_dim)
        self.embed_dim = embed_dim
        self.num_prefix_tokens = check_count("num_prefix_tokens", num_prefix_tokens)

    def forward(self, tokens: Tensor, grid_size: Sequence[int]) -> Tensor:
        """Return the tokens with their positions added.

        Args:
            tokens: (batch, num_prefix_tokens + rows * columns, embed_dim)
            grid_size: Rows and columns.
        """
        check_grid_tokens(tokens, self.embed_dim, self.num_prefix_tokens, check_grid_size(grid_size))
        table = sinusoidal_table_2d(grid_size, self.embed_dim, device=tokens.device).to(tokens.dtype)
        return tokens + nn.functional.pad(table, (0, 0, self.num_prefix_tokens, 0))
