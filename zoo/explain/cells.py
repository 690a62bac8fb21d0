"""Where the cells of a coarse map lie on the image, so that a map is spread over the right pixels.

Stretching a map evenly over the image is right for patches side by side, but a 3x3 convolution of stride 2 centres its
first output on the first pixel: after five of them a cell of 32 pixels lies 15.5 pixels further up and left than an
even stretch puts it.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

_RESAMPLING = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)


class Axis(NamedTuple):
    """Centres of cells along an axis, in pixels of the image whose first pixel has its centre at 0.

    Args:
        first: Centre of the first cell.
        step: From one centre to the next, above 0.
    """

    first: float
    step: float


@dataclass(frozen=True)
class Cells:
    """Where the cells of a map lie.

    Args:
        rows: Centres of the rows.
        columns: Centres of the columns.
    """

    rows: Axis
    columns: Axis

    @classmethod
    def tile(cls, size: tuple[int, int], image_size: tuple[int, int]) -> "Cells":
        """Return cells that lie side by side and cover the image.

        >>> Cells.tile((2, 4), (8, 8))
        Cells(rows=Axis(first=1.5, step=4.0), columns=Axis(first=0.5, step=2.0))
        """
        rows, columns = (pixels / cells for cells, pixels in zip(size, image_size, strict=True))
        return cls(Axis((rows - 1) / 2, rows), Axis((columns - 1) / 2, columns))

    def spread(self, values: Tensor, image_size: tuple[int, int]) -> Tensor:
        """Interpolate linearly between the centres of the cells; beyond the outermost the values stay.

        Args:
            values: (rows, columns)
            image_size: Height and width in pixels.

        Returns:
            float32 (height, width) on the CPU.
        """
        spread_rows = _interpolation(self.rows, values.shape[0], image_size[0])
        spread_columns = _interpolation(self.columns, values.shape[1], image_size[1])
        return (spread_rows @ values.detach().double().cpu() @ spread_columns.T).float()


def _interpolation(axis: Axis, num_cells: int, num_pixels: int) -> Tensor:
    """Return the matrix (pixels, cells) that interpolates along an axis."""
    positions = (np.arange(num_pixels) - axis.first) / axis.step
    identity = np.eye(num_cells)
    columns = [np.interp(positions, np.arange(num_cells), identity[cell]) for cell in range(num_cells)]
    return torch.from_numpy(np.stack(columns, axis=1))


class CellTracker:
    """Knows where the cells of every map size lie, once the network has run.

    Args:
        image_size: Height and width of the images.
    """

    def __init__(self, image_size: tuple[int, int]) -> None:
        self.image_size = image_size
        self._known: dict[tuple[int, int], Cells | None] = {image_size: Cells(Axis(0, 1), Axis(0, 1))}

    def of(self, size: tuple[int, int]) -> Cells:
        """Return the cells of maps of so many rows and columns: side by side where no module told better."""
        return self._known.get(size) or Cells.tile(size, self.image_size)

    def see(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Learn from a convolution or pooling that ran; a forward hook."""
        sizes = [(value.shape[-2], value.shape[-1]) for value in (inputs[0], output) if isinstance(value, Tensor)]
        if len(sizes) != 2 or sizes[0] not in self._known or sizes[1] in self._known:
            return
        before = self._known[sizes[0]]
        kernel, stride, padding, dilation = (_pair(getattr(module, name, 1)) for name in _GEOMETRY)
        if before is None or padding is None:
            self._known[sizes[1]] = None
            return
        rounded = math.ceil if getattr(module, "ceil_mode", False) else math.floor
        axes = []
        for number, axis in enumerate((before.rows, before.columns)):
            reach = dilation[number] * (kernel[number] - 1)
            steps = (sizes[0][number] + 2 * padding[number] - reach - 1) / stride[number]
            if sizes[1][number] != rounded(steps) + 1:  # padded by other means
                self._known[sizes[1]] = None
                return
            axes.append(Axis(axis.first + (reach / 2 - padding[number]) * axis.step, axis.step * stride[number]))
        self._known[sizes[1]] = Cells(*axes)


_GEOMETRY = ("kernel_size", "stride", "padding", "dilation")


def _pair(value: Any) -> Any:
    """Return a pair of integers, or ``None`` for padding told in words."""
    if isinstance(value, str):
        return None
    return (value, value) if isinstance(value, int) else tuple(value)


@contextmanager
def follow_cells(model: nn.Module, image_size: tuple[int, int]) -> Iterator[CellTracker]:
    """Watch the convolutions and poolings of a model that runs inside the ``with``."""
    tracker = CellTracker(image_size)
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, _RESAMPLING):
                stack.callback(module.register_forward_hook(tracker.see).remove)
        yield tracker
