"""One PNG per caption: the image, and where the captioner looked before it wrote each word."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.figure import Figure
from torch import Tensor

from zoo.explain.drawing.overlays import enlarge, overlay
from zoo.explain.drawing.panels import WIDTH
from zoo.explain.drawing.sheet import as_png, rasterise
from zoo.explain.placement import Placement

COLUMNS = 5
_SIDE = 2.3


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def draw_caption_sheet(
    pixels: npt.NDArray[np.uint8], placement: Placement, words: Sequence[str], maps: Tensor, *, title: str
) -> bytes:
    """Return a sheet as PNG: the image, then one overlay per word, each scaled by itself.

    Args:
        pixels: The image, uint8 (height, width, 3).
        placement: Where the network's input lies on it.
        words: What was written.
        maps: Where the captioner looked before each word, (words, rows, columns); each map sums to 1.
        title: Stands above the pictures.

    Raises:
        ValueError: There is not one map for each word.
    """
    if len(words) != len(maps):
        raise ValueError(f"{len(maps)} maps are given for {len(words)} words")
    enlarged, _ = enlarge(pixels, placement)
    pictures = [(enlarged, "the image")]
    for word, values in zip(words, maps, strict=True):
        pictures.append(
            (overlay(pixels, placement, values), f"{word}\nat most {100 * float(values.max()):.0f} % in a cell")
        )
    num_rows = -(-len(pictures) // COLUMNS)
    figure = Figure(figsize=(WIDTH, 0.4 + (_SIDE + 0.4) * num_rows), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for axes in (grid := figure.subplots(num_rows, COLUMNS, squeeze=False)).flat:
        axes.set_axis_off()
    for axes, (picture, label) in zip(grid.flat, pictures, strict=False):
        axes.imshow(picture, interpolation="antialiased")
        axes.set_title(label, fontsize=9)
    return as_png(rasterise(figure))
