"""A grid of tokens cut into windows side by side, and put together again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class WindowPartition:
    """Windows over a grid; those at the border that reach beyond it are filled with padding.

    Args:
        grid_size: Rows and columns of the tokens, which stand row by row.
        window_size: Rows and columns of a window.
        shift: Row and column at which the first whole window begins, each 0 up to the window's size.
    """

    grid_size: tuple[int, int]
    window_size: tuple[int, int]
    shift: tuple[int, int] = (0, 0)

    @property
    def _before(self) -> list[int]:
        return [-first % width for width, first in zip(self.window_size, self.shift, strict=True)]

    @property
    def _counts(self) -> list[int]:
        sizes = zip(self.grid_size, self.window_size, self._before, strict=True)
        return [-(-(size + before) // width) for size, width, before in sizes]

    @property
    def is_exact(self) -> bool:
        """Whether the windows cover the grid without padding."""
        return not any(self._padding)

    @property
    def _padding(self) -> list[int]:
        """Columns before and after, rows before and after, as torch's pad takes them."""
        padding: list[int] = []
        for size, width, before, count in zip(
            self.grid_size, self.window_size, self._before, self._counts, strict=True
        ):
            padding = [before, count * width - size - before, *padding]
        return padding

    def split(self, tokens: Tensor) -> Tensor:
        """Return the tokens of each window, zeros in the padding.

        Shape:
            (batch, heads, tokens, width) -> (batch * windows, heads, window_tokens, width)

        >>> WindowPartition((1, 3), (1, 2)).split(torch.tensor([1, 2, 3]).reshape(1, 1, 3, 1)).flatten(1).tolist()
        [[1, 2], [3, 0]]
        """
        grid = functional.pad(tokens.unflatten(2, self.grid_size), (0, 0, *self._padding))
        (rows, columns), (height, width) = self._counts, self.window_size
        windows = grid.unflatten(3, (columns, width)).unflatten(2, (rows, height))
        batch, heads, *_, features = windows.shape
        return windows.permute(0, 2, 4, 1, 3, 5, 6).reshape(batch * rows * columns, heads, height * width, features)

    def join(self, windows: Tensor) -> Tensor:
        """Undo :meth:`split`, and drop the padding.

        Shape:
            (batch * windows, heads, window_tokens, width) -> (batch, heads, tokens, width)
        """
        (rows, columns), (height, width) = self._counts, self.window_size
        grid = windows.unflatten(2, (height, width)).unflatten(0, (-1, rows, columns))
        grid = grid.permute(0, 3, 1, 4, 2, 5, 6).flatten(4, 5).flatten(2, 3)
        (top, left), (high, wide) = self._before, self.grid_size
        return grid[:, :, top : top + high, left : left + wide].flatten(2, 3)

    def mask(self, key_mask: Tensor | None, batch: int, device: torch.device) -> Tensor | None:
        """Tell which tokens of each window may be looked at; ``None`` for all.

        Args:
            key_mask: Boolean (batch, 1, 1, tokens), or ``None``.
            batch: Number of samples.
            device: Where the mask is made.

        Returns:
            (batch * windows, 1, 1, window_tokens), or ``None``
        """
        if key_mask is None and self.is_exact:
            return None
        if key_mask is None:
            tokens = self.grid_size[0] * self.grid_size[1]
            key_mask = torch.ones(batch, 1, 1, tokens, dtype=torch.bool, device=device)
        return self.split(key_mask.mT).mT
