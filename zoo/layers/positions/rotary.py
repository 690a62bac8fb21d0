"""Rotary positions on a grid: scores depend on the offset of two tokens, without any parameter."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.functional.rotation import Rotation
from zoo.functional.validation import check_count, check_positive_int
from zoo.layers.positions.grid import angle_dtype, check_grid_size


class RotaryPositions2d(nn.Module):
    """Angles that turn pairs of columns: half of the pairs by ``row * w_t``, the others by ``column * w_t``.

    ``w_t = base^(-t / (head_dim / 4))``, t = 0, 1, ... head_dim / 4 - 1. Prefix tokens are not turned.

    Args:
        head_dim: Width of a head, a multiple of 4.
        base: How much slower the last pair turns than the first, nearly.
        num_prefix_tokens: Tokens before the grid, at least 0.

    Raises:
        ValueError: An argument is out of its range.

    >>> RotaryPositions2d(8)((2, 3)).cosine.shape
    torch.Size([6, 4])

    Source:
        Su et al.: RoFormer, https://arxiv.org/abs/2104.09864; on a grid, "axial": Heo et al.: Rotary Position
        Embedding for Vision Transformer, ECCV 2024, https://arxiv.org/abs/2403.13298
    """

    def __init__(self, head_dim: int, *, base: float = 100.0, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        if check_positive_int("head_dim", head_dim) % 4:
            raise ValueError(f"head_dim ({head_dim}) must be a multiple of 4: pairs of columns for rows and columns")
        if isinstance(base, bool) or not isinstance(base, int | float) or not base > 1:
            raise ValueError(f"base ({base!r}) must be a number above 1")
        self.head_dim = head_dim
        self.base = float(base)
        self.num_prefix_tokens = check_count("num_prefix_tokens", num_prefix_tokens)

    def forward(self, grid_size: Sequence[int], device: torch.device | str | None = None) -> Rotation:
        """Return the rotation of all tokens, in float32, for every layer of a network.

        Args:
            grid_size: Rows and columns.
            device: Where the tokens are.
        """
        rows, columns = check_grid_size(grid_size)
        exponents = torch.arange(self.head_dim // 4, dtype=angle_dtype(device), device=device) / (self.head_dim // 4)
        frequencies = self.base**-exponents
        place = torch.arange(rows * columns, device=device)
        angles = torch.cat([_outer(place // columns, frequencies), _outer(place % columns, frequencies)], -1)
        angles = nn.functional.pad(angles, (0, 0, self.num_prefix_tokens, 0))
        return Rotation(angles.cos().float(), angles.sin().float())


def _outer(positions: Tensor, frequencies: Tensor) -> Tensor:
    return positions[:, None] * frequencies
