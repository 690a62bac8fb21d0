"""How much each place of an image matters to an answer, as one method sees it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

MAX_CELLS = 16
"""Maps are compared on a grid of at most so many rows and columns, so that single pixels decide nothing."""


@dataclass(frozen=True)
class Heatmap:
    """How much each pixel of a network's input matters to one answer.

    Args:
        method: Short name of the method, such as ``grad_cam``.
        title: The method in words.
        values: Larger where it matters more, float32 (height, width) in pixels of the network's input.
        is_signed: Whether negative values speak against the answer; otherwise there are none.

    Raises:
        ValueError: The values are no finite map, or negative without a sign being meant.

    >>> Heatmap("x", "X", torch.tensor([[0.0, 1.0], [3.0, 0.0]])).mass().tolist()
    [[0.0, 0.25], [0.75, 0.0]]
    """

    method: str
    title: str
    values: Tensor
    is_signed: bool = False

    def __post_init__(self) -> None:
        if self.values.dim() != 2 or not self.values.is_floating_point() or not self.values.isfinite().all():
            shape = tuple(self.values.shape)
            raise ValueError(f"the values of {self.method!r} must be a finite map (height, width), got {shape}")
        if not self.is_signed and self.values.numel() and float(self.values.min()) < 0:
            raise ValueError(f"{self.method!r} has no sign, but its smallest value is {float(self.values.min()):g}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.values.shape[0], self.values.shape[1]

    def mass(self) -> Tensor:
        """Return what speaks for the answer as shares that sum to 1, (height, width); even where nothing does."""
        return to_mass(self.values)

    def cells(self) -> Tensor:
        """Return the values averaged over a grid of at most 16 x 16 cells, (rows, columns)."""
        height, width = self.values.shape
        size = (min(height, MAX_CELLS), min(width, MAX_CELLS))
        return functional.adaptive_avg_pool2d(self.values[None, None], size)[0, 0]


def to_mass(values: Tensor) -> Tensor:
    """Cut negative values off and scale to a sum of 1; even where nothing is left.

    >>> to_mass(torch.tensor([-1.0, 1.0, 3.0])).tolist(), to_mass(torch.zeros(4)).tolist()
    ([0.0, 0.25, 0.75], [0.25, 0.25, 0.25, 0.25])
    """
    positive = values.double().clamp_min(0)
    total = positive.sum()
    if total <= 0:
        return torch.full_like(values, 1 / values.numel())
    return (positive / total).to(values.dtype)
