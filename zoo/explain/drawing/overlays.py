"""A map laid over the image it belongs to, as pixels."""

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from torch import Tensor

from zoo.explain.placement import Placement

SHORTEST_SIDE = 224
_FOR, _AGAINST = (0.86, 0.08, 0.08), (0.1, 0.25, 0.95)
_COLOUR_KEPT, _STRONGEST, _UNSEEN = 0.35, 0.7, 0.3


def enlarge(pixels: npt.NDArray[np.uint8], placement: Placement) -> tuple[npt.NDArray[np.uint8], Placement]:
    """Repeat the pixels of a small image until its shorter side is large enough to look at."""
    factor = max(1, round(SHORTEST_SIDE / min(pixels.shape[:2])))
    height, width = placement.image_size
    left, top, right, bottom = placement.box
    box = (left * factor, top * factor, right * factor, bottom * factor)
    return pixels.repeat(factor, 0).repeat(factor, 1), Placement(box, (height * factor, width * factor))


def overlay(
    pixels: npt.NDArray[np.uint8], placement: Placement, values: Tensor, *, is_signed: bool = False
) -> npt.NDArray[np.uint8]:
    """Lay a map over an image: bright where it is large; red for and blue against where it has a sign.

    Places that the network does not see are dark.

    Args:
        pixels: uint8 (height, width, 3).
        placement: Where the map's pixels lie on the image.
        values: (height, width) in pixels of the network's input.
        is_signed: Centre the colours at 0.

    Returns:
        uint8, enlarged where the image is small.
    """
    pixels, placement = enlarge(pixels, placement)
    laid = placement.to_image(values)
    seen = ~np.isnan(laid)
    image = pixels.astype(np.float64) / 255
    grey = image.mean(2, keepdims=True)
    faded = _COLOUR_KEPT * image + (1 - _COLOUR_KEPT) * grey
    strength, colours = _colour(np.nan_to_num(laid), seen, is_signed=is_signed)
    alpha = _STRONGEST * strength[..., None]
    mixed = (1 - alpha) * faded + alpha * colours
    mixed[~seen] = _UNSEEN * grey.repeat(3, 2)[~seen]
    result: npt.NDArray[np.uint8] = (mixed.clip(0, 1) * 255).round().astype(np.uint8)
    return result


def _colour(
    laid: npt.NDArray[np.float32], seen: npt.NDArray[np.bool_], *, is_signed: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how strong each pixel is coloured, 0 to 1, and its colour."""
    inside = laid[seen]
    if is_signed:
        # A single pixel of many thousands must not make all others pale.
        limit = max(float(np.percentile(np.abs(inside), 99.5)), 1e-12)
        scaled = (laid / limit).clip(-1, 1)
        return np.abs(scaled), np.where(scaled[..., None] > 0, _FOR, _AGAINST)
    low, high = float(inside.min()), float(inside.max())
    scaled = ((laid - low) / max(high - low, 1e-12)).clip(0, 1)
    return scaled, colormaps["inferno"](0.25 + 0.75 * scaled)[..., :3]
