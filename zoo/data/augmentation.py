"""Random changes to training images, made for a whole batch at once on the device of its tensors."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

PaddingMode = Literal["reflect", "constant"]


def uniform_draws(indices: Tensor, columns: int, seed: int) -> Tensor:
    """Return ``columns`` uniform numbers in [0, 1) for each index: a hash of (seed, index, column), not a stream.

    So what an image draws depends neither on its batch nor on the device, the process or any earlier draw. The hash is
    the finaliser of SplitMix64.

    Args:
        indices: int64 (batch,).
        columns: Numbers per index.
        seed: Any integer below 2^63.

    Returns:
        float32 (batch, columns), multiples of 2^-24.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
    https://doi.org/10.1145/2660193.2660195

    >>> uniform_draws(torch.tensor([7, 7, 8]), 2, seed=1).unique().numel()
    4
    """
    counters = indices.unsqueeze(1) * columns + torch.arange(columns, device=indices.device)
    # The multipliers are 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB as signed 64-bit integers;
    # products wrap around, and the masks make the arithmetic shifts logical.
    bits = counters * -7046029254386353131 + seed
    bits = (bits ^ (bits >> 30 & (1 << 34) - 1)) * -4658895280553007687
    bits = (bits ^ (bits >> 27 & (1 << 37) - 1)) * -7723592293110705685
    bits = bits ^ (bits >> 31 & (1 << 33) - 1)
    return (bits >> 40 & (1 << 24) - 1).to(torch.float32) * 2.0**-24


@dataclasses.dataclass(frozen=True)
class CropFlipCutout:
    """Shift by padding and cropping, mirror, and blank out a square.

    Args:
        crop_padding: Largest shift in pixels; each image moves by a whole number of pixels, uniform in
            -crop_padding..crop_padding in both directions; 0 for none.
        padding_mode: What fills the border: ``"reflect"`` mirrors the image about its edge pixels (which are not
            repeated), ``"constant"`` is black.
        horizontal_flip: Mirror each image left to right with probability 1/2.
        cutout: Side in pixels of the square set to the mean colour; its centre is uniform over the image, the part
            outside is cut off; 0 for none.

    Raises:
        ValueError: A negative size, or an unknown padding mode.

    Source: DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017,
    https://arxiv.org/abs/1708.04552
    """

    crop_padding: int = 4
    padding_mode: PaddingMode = "reflect"
    horizontal_flip: bool = True
    cutout: int = 0

    def __post_init__(self) -> None:
        if self.crop_padding < 0 or self.cutout < 0:
            raise ValueError(f"crop_padding ({self.crop_padding}) and cutout ({self.cutout}) must be at least 0")
        if self.padding_mode not in ("reflect", "constant"):
            raise ValueError(f"padding_mode {self.padding_mode!r} must be 'reflect' or 'constant'")

    def move(self, images: Tensor, draws: Tensor) -> Tensor:
        """Shift and mirror.

        Args:
            images: (batch, channels, height, width).
            draws: (batch, 5) from :func:`uniform_draws`.

        Returns:
            The same shape and dtype, in channels_last order.
        """
        if not self.crop_padding and not self.horizontal_flip:
            return images
        height, width = images.shape[-2:]
        if self.crop_padding >= min(height, width):
            raise ValueError(f"crop_padding ({self.crop_padding}) must be below the image size, {height} x {width}")
        shifts = (draws[:, :2] * (2 * self.crop_padding + 1)).long() - self.crop_padding
        columns = torch.arange(width, device=images.device).expand(len(images), width)
        if self.horizontal_flip:
            columns = torch.where(draws[:, 2:3] < 0.5, width - 1 - columns, columns)
        rows = torch.arange(height, device=images.device) + shifts[:, :1]
        columns = columns + shifts[:, 1:]
        pixels = (_inside(rows, height) * width).unsqueeze(2) + _inside(columns, width).unsqueeze(1)
        pixels += torch.arange(len(images), device=images.device).view(-1, 1, 1) * (height * width)
        stored = images.permute(0, 2, 3, 1).reshape(-1, images.shape[1])
        moved = stored.index_select(0, pixels.view(-1)).view(len(images), height, width, -1)
        if self.padding_mode == "constant" and self.crop_padding:
            kept_rows = (rows >= 0) & (rows < height)
            kept_columns = (columns >= 0) & (columns < width)
            moved *= (kept_rows.unsqueeze(2) & kept_columns.unsqueeze(1)).unsqueeze(3)
        return moved.permute(0, 3, 1, 2)

    def blank(self, images: Tensor, draws: Tensor) -> Tensor:
        """Set a square of each normalised image to 0, the mean colour.

        Args:
            images: Normalised (batch, channels, height, width).
            draws: (batch, 5) from :func:`uniform_draws`.
        """
        if not self.cutout:
            return images
        height, width = images.shape[-2:]
        rows = self._outside_square(draws[:, 3:4], height)
        columns = self._outside_square(draws[:, 4:5], width)
        return images * (rows.unsqueeze(2) | columns.unsqueeze(1)).unsqueeze(1)

    def _outside_square(self, draws: Tensor, size: int) -> Tensor:
        first = (draws * size).long() - self.cutout // 2
        positions = torch.arange(size, device=draws.device)
        return (positions < first) | (positions >= first + self.cutout)

    def describe(self) -> str:
        """Say in one line what is done to a training image."""
        parts = []
        if self.crop_padding:
            border = "mirrored" if self.padding_mode == "reflect" else "black"
            parts.append(f"shifted by up to {self.crop_padding} pixels ({border} border)")
        if self.horizontal_flip:
            parts.append("mirrored half of the time")
        if self.cutout:
            parts.append(f"a {self.cutout} x {self.cutout} square set to the mean colour")
        return ", ".join(parts) or "unchanged"


def _inside(positions: Tensor, size: int) -> Tensor:
    """Mirror positions outside 0..size-1 about the first and the last one."""
    positions = positions.abs()
    return torch.where(positions >= size, 2 * (size - 1) - positions, positions)
