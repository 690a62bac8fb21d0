"""Pictures of scenes: outlines of shapes and handwritten digits, painted in colour; whole numbers throughout."""

import functools

import numpy as np
import numpy.typing as npt
from PIL import Image

Coverage = npt.NDArray[np.uint8]

RGB = {
    "red": (225, 55, 50),
    "green": (60, 185, 75),
    "blue": (70, 110, 240),
    "yellow": (240, 210, 60),
    "purple": (170, 70, 200),
    "white": (235, 235, 235),
}
COLOUR_JITTER = 15
_SAMPLES = 4
"""Points per pixel and axis at which an outline is sampled."""


@functools.cache
def shape_coverage(shape: str, side: int) -> Coverage:
    """Return how much of each pixel of a square of ``side`` pixels a shape covers, 0 to 255.

    >>> shape_coverage("square", 2).tolist()
    [[255, 255], [255, 255]]
    """
    points = (2 * np.arange(side * _SAMPLES) + 1 - side * _SAMPLES) / (side * _SAMPLES)
    down, right = points[:, None], points[None, :]
    radius = down**2 + right**2
    inside = {
        "circle": radius <= 1,
        "square": np.ones_like(radius, dtype=bool),
        "triangle": np.abs(right) <= (down + 1) / 2,
        "cross": (np.abs(right) < 0.32) | (np.abs(down) < 0.32),
        "ring": (radius <= 1) & (radius >= 0.36),
        "diamond": np.abs(right) + np.abs(down) <= 1,
    }[shape]
    counts = inside.reshape(side, _SAMPLES, side, _SAMPLES).sum(axis=(1, 3))
    coverage: Coverage = (counts * 255 // _SAMPLES**2).astype(np.uint8)
    return coverage


def digit_coverage(pixels: npt.NDArray[np.float32], side: int) -> Coverage:
    """Scale an 8 x 8 digit in 0..1 to ``side`` pixels, strokes made bold; 0 to 255."""
    bold = np.minimum(pixels * 1.4, 1) * 255
    image = Image.fromarray(bold.astype(np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(image)


def paint(image: npt.NDArray[np.uint8], coverage: Coverage, top: int, left: int, colour: npt.NDArray[np.int64]) -> None:
    """Lay a thing of one colour over an image (height, width, 3), in place."""
    height, width = coverage.shape
    part = image[top : top + height, left : left + width]
    share = coverage[..., None].astype(np.int64)
    part[:] = (part * (255 - share) + colour * share + 127) // 255  # rounded


def draw_backgrounds(count: int, size: int, generator: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return dark images (count, size, size, 3), each of one colour with noise."""
    tint = generator.integers(10, 61, size=(count, 1, 1, 3), dtype=np.uint8)
    noise = generator.integers(0, 21, size=(count, size, size, 3), dtype=np.uint8)
    images: npt.NDArray[np.uint8] = tint + noise
    return images


def draw_colour_jitter(shape: tuple[int, ...], generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return numbers by which colours are moved, up to ``COLOUR_JITTER`` in each channel."""
    return generator.integers(-COLOUR_JITTER, COLOUR_JITTER + 1, size=shape)
