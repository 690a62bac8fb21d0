"""Whether a plain net spends itself on the wrong places: signs in the data, in its gradient and in its errors."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from zoo.comparison.recommendation.data_measures import DataMeasures, ImageMeasures, measure_images
from zoo.comparison.recommendation.saliency import SaliencyShares, gradient_mass, share_outside
from zoo.comparison.recommendation.trials import Answers
from zoo.data.class_folders import IMAGE_SUFFIXES
from zoo.data.data_module import ImageDataModule
from zoo.models.backbone import Backbone

MEASURED_IMAGES = 1000
SALIENCY_IMAGES = 500

# Half way between centred and freely placed digits, and between plain and cluttered backgrounds, as
# benchmarks/data_measures.py measures them on cluttered_digits.
POSITION_SPREAD_SIGN = 0.06
CLUTTER_SIGN = 0.06
SALIENCY_SIGN = 1.0
ERROR_SIGN_LEVEL = 0.05


@dataclass(frozen=True)
class Sign:
    """One thing that speaks for a spatial gate, or does not.

    Args:
        name: What is looked at.
        value: Measured.
        threshold: Where it begins to speak for a spatial gate: from below for a measure, from above for a probability.
        holds: Whether it does.
        sentence: The same in words.
    """

    name: str
    value: float
    threshold: float
    holds: bool
    sentence: str


@dataclass(frozen=True)
class HeldOutImages:
    """The held-out images that are measured, an even sample when there are many.

    Args:
        pixels: uint8 (images, channels, height, width).
        labels: int64 (images,).
        indices: Of each in the split, rising, (images,).
    """

    pixels: Tensor
    labels: Tensor
    indices: Tensor


def read_held_out(data: ImageDataModule, limit: int = MEASURED_IMAGES) -> HeldOutImages:
    """Read at most ``limit`` validation images, evenly spaced over the split, which may be sorted by class."""
    wanted = torch.linspace(0, data.num_val - 1, min(limit, data.num_val)).round().long()
    parts = []
    for batch in data.create_loader("val"):
        kept = torch.isin(batch.indices, wanted)
        parts.append((batch.images[kept], batch.labels[kept], batch.indices[kept]))
    data.teardown()
    pixels, labels, indices = (torch.cat(part) for part in zip(*parts, strict=True))
    order = indices.argsort()
    return HeldOutImages(pixels[order], labels[order], indices[order])


def typical_short_side(folder: Path | str, limit: int = 50) -> int:
    """Return the median short side in pixels of up to ``limit`` images of a folder, evenly chosen.

    Only the heads of the files are read.

    Raises:
        ValueError: The folder holds no image.
    """
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
    sides = []
    for position in np.linspace(0, len(paths) - 1, min(limit, len(paths))).round().astype(int):
        with contextlib.suppress(OSError), Image.open(paths[position]) as image:
            sides.append(min(image.size))
    if not sides:
        raise ValueError(f"{folder} holds no image that can be opened")
    return int(np.median(sides))


def measure_held_out(images: HeldOutImages) -> ImageMeasures:
    """Measure all images, in batches."""
    return ImageMeasures.join([measure_images(part) for part in images.pixels.split(128)])


def measure_saliency(
    model: Backbone, data: ImageDataModule, images: HeldOutImages, measures: ImageMeasures, device: torch.device
) -> SaliencyShares:
    """Say how a net's gradient lies to the object-like regions of the images, at most ``SALIENCY_IMAGES`` of them."""
    chosen = torch.linspace(0, len(images.labels) - 1, min(SALIENCY_IMAGES, len(images.labels))).round().long()
    normalize = data.preprocessing.normalize
    model.to(device).requires_grad_(False)
    maps = [
        gradient_mass(model, normalize(images.pixels[part].to(device)), images.labels[part].to(device)).cpu()
        for part in chosen.split(64)
    ]
    return share_outside(torch.cat(maps), measures.region[chosen])


def find_signs(
    summary: DataMeasures, measures: ImageMeasures, saliency: SaliencyShares, error_rates: npt.NDArray[np.float64]
) -> list[Sign]:
    """Look for what speaks for a spatial gate.

    Args:
        summary: Of the images.
        measures: Of each image.
        saliency: Of a plain net on them.
        error_rates: Of the plain nets on each image, the share of seeds that are wrong, (images,).
    """
    ratio = saliency.ratio
    return [
        _threshold_sign("position spread", summary.position_spread, POSITION_SPREAD_SIGN, "of the image's side"),
        _threshold_sign("clutter", summary.clutter, CLUTTER_SIGN, "of full brightness per pixel"),
        _threshold_sign("saliency outside", ratio, SALIENCY_SIGN, "times what an indifferent net would have there"),
        *error_signs(measures, error_rates),
    ]


def _threshold_sign(name: str, value: float, threshold: float, unit: str) -> Sign:
    holds = value >= threshold
    sentence = f"{name} {value:.4f} {unit}, {'at least' if holds else 'below'} {threshold:g}"
    return Sign(name, value, threshold, holds, sentence)


def error_signs(measures: ImageMeasures, error_rates: npt.NDArray[np.float64]) -> list[Sign]:
    """Ask whether errors are more frequent where the object is off centre, and where the background is busier.

    Each is a one-sided test of Kendall's rank correlation between the measure and the share of seeds that are wrong;
    the two share an error of 5 % (Bonferroni).
    """
    from scipy.stats import kendalltau

    asked = {
        "errors off centre": (measures.off_centre, "with the distance of the object-like mass from the middle"),
        "errors in clutter": (measures.clutter, "with the clutter of the background"),
    }
    threshold = ERROR_SIGN_LEVEL / len(asked)
    signs = []
    for name, (values, what) in asked.items():
        tau, p = 0.0, 1.0
        if error_rates.min() < error_rates.max() and values.min() < values.max():
            found = kendalltau(values.numpy(), error_rates, alternative="greater")
            tau, p = float(found.statistic), float(found.pvalue)
        verb = "rise" if p < threshold else "are not shown to rise"
        sentence = f"errors {verb} {what} (rank correlation {tau:+.2f}, p = {p:.2g})"
        signs.append(Sign(name, p, threshold, p < threshold, sentence))
    return signs


def error_rates_of(answers: Sequence[Answers], indices: Tensor) -> npt.NDArray[np.float64]:
    """Return the share of seeds that are wrong on each of the chosen images."""
    rights = np.array([answer[indices.numpy()] for answer in answers], dtype=np.float64)
    return 1 - rights.mean(axis=0)
