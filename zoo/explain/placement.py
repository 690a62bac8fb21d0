"""From the pixels of a network's input back to those of the image it was cut and scaled from."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from zoo.preprocessing import Preprocessing


@dataclass(frozen=True)
class Placement:
    """Where a network's input lies on an image.

    Args:
        box: The part that the network sees: left, top, right, bottom in the image's pixels.
        image_size: Height and width of the image.
    """

    box: tuple[float, float, float, float]
    image_size: tuple[int, int]

    @classmethod
    def of(cls, image: Image.Image, preprocessing: Preprocessing) -> "Placement":
        """Return where the input that ``preprocessing`` makes of an image lies on it."""
        return cls(preprocessing.kept_box(image), (image.height, image.width))

    def to_image(self, values: Tensor) -> npt.NDArray[np.float32]:
        """Lay a map over the image.

        Args:
            values: (height, width) in pixels of the network's input.

        Returns:
            float32 of the image's height and width, linear between the input's pixels; NaN where the network sees
            nothing.

        >>> Placement((1, 0, 3, 1), (1, 4)).to_image(torch.tensor([[5.0, 7.0]])).tolist()
        [[nan, 5.0, 7.0, nan]]
        """
        left, top, right, bottom = self.box
        rows = _interpolation(top, bottom, self.image_size[0], values.shape[0])
        columns = _interpolation(left, right, self.image_size[1], values.shape[1])
        # NaN times 0 would spread along the other axis, so places outside are marked at the end.
        laid = np.nan_to_num(rows) @ values.double().numpy() @ np.nan_to_num(columns).T
        outside = np.isnan(rows[:, :1]) | np.isnan(columns[:, :1]).T
        laid[outside] = np.nan
        return laid.astype(np.float32)


def _interpolation(start: float, end: float, num_pixels: int, num_values: int) -> npt.NDArray[np.float64]:
    """Return the matrix (pixels, values) that reads values laid evenly from ``start`` to ``end``; NaN rows outside."""
    centres = np.arange(num_pixels) + 0.5
    positions = (centres - start) / (end - start) * num_values - 0.5
    identity = np.eye(num_values)
    matrix = np.stack([np.interp(positions, np.arange(num_values), row) for row in identity], axis=1)
    matrix[(centres < start) | (centres > end)] = np.nan
    return matrix


def share_inside(values: Tensor, region: Tensor) -> float:
    """Return the share of a map's mass that lies inside a region.

    Args:
        values: Not negative, (height, width).
        region: Boolean, or a fraction of each pixel, of the same shape.
    """
    mass = values.double()
    return float((mass * region.double()).sum() / mass.sum().clamp_min(torch.finfo(torch.float64).tiny))
