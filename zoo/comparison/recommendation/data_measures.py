"""How much position, size and background vary in images that have no boxes, from the pixels alone.

``benchmarks/data_measures.py`` holds these measures against object boxes and against the knobs of cluttered_digits,
and writes how far they can be trusted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SIDE = 64
"""Images are measured at this many pixels a side, whatever their own size, so that figures can be compared."""

_BORDER = 4
_COLOUR_FLOOR = 1e-3
_FINE_SIGMA, _COARSE_SIGMA, _EDGE_SIGMA = 1.0, 2.0, 3.0


@dataclass(frozen=True)
class ImageMeasures:
    """What is measured of each image.

    Args:
        centre: Row and column of the object-like mass, as fractions of the image from its middle, (images, 2).
        size: Its extent: root mean square distance from its centre as a fraction of the image's side, (images,).
        clutter: Mean brightness step per pixel outside the object-like region, full brightness being 1, (images,).
        likeness: How object-like each pixel is, 0 to 1, (images, SIDE, SIDE).
        region: Pixels of the object-like region, (images, SIDE, SIDE).
    """

    centre: Tensor
    size: Tensor
    clutter: Tensor
    likeness: Tensor
    region: Tensor

    @property
    def off_centre(self) -> Tensor:
        """Distance of the object-like mass from the middle, as a fraction of the image's side, (images,)."""
        return self.centre.norm(dim=1)

    @staticmethod
    def join(parts: "list[ImageMeasures]") -> "ImageMeasures":
        """Put the measures of several batches into one."""
        names = ImageMeasures.__dataclass_fields__
        return ImageMeasures(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True)
class DataMeasures:
    """What is measured of a set of images.

    Args:
        position_spread: Standard deviation of the object-like centre over the images, mean of rows and columns, as a
            fraction of the image's side.
        mean_size: Mean extent of the object-like mass, as a fraction of the image's side.
        size_spread: Standard deviation of the logarithm of that extent.
        clutter: Mean brightness step per pixel outside the object-like region.
        num_images: How many were measured.
    """

    position_spread: float
    mean_size: float
    size_spread: float
    clutter: float
    num_images: int

    @classmethod
    def of(cls, measures: ImageMeasures) -> "DataMeasures":
        """Sum up the measures of at least two images."""
        return cls(
            position_spread=float(measures.centre.std(dim=0).mean()),
            mean_size=float(measures.size.mean()),
            size_spread=float(measures.size.log().std()),
            clutter=float(measures.clutter.mean()),
            num_images=len(measures.size),
        )


def measure_images(images: Tensor) -> ImageMeasures:
    """Measure images one by one.

    A pixel is object-like where edges are dense and the colour is unlike the image's borders: photographers and
    cameras keep what counts away from the border on three sides at least. The region is where the likeness reaches
    half of the image's largest.

    Args:
        images: uint8 (images, 1 or 3 channels, height, width).

    Raises:
        ValueError: The images are of another type or shape.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images must be uint8 (images, 1 or 3 channels, height, width), got {images.dtype} {tuple(images.shape)}"
        )
    colours = opponent_colours(to_measured_size(images))
    edges = edge_strength(colours)
    likeness = object_likeness(colours, edges)
    region = likeness >= 0.5
    centre, size = moments(likeness)
    outside = ~region
    # An image that is object-like all over has no background: its clutter is what is there.
    outside |= ~outside.any(dim=(1, 2), keepdim=True)
    clutter = (edges * outside).sum(dim=(1, 2)) / outside.sum(dim=(1, 2))
    return ImageMeasures(centre, size, clutter, likeness, region)


def to_measured_size(images: Tensor) -> Tensor:
    """Bring uint8 images to float32 (images, 3, SIDE, SIDE) in 0..1."""
    scaled = functional.interpolate(
        images.float() / 255, size=(SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False
    )
    return scaled.expand(-1, 3, -1, -1)


def opponent_colours(images: Tensor) -> Tensor:
    """Return brightness, red against green, and yellow against blue: (images, 3, height, width)."""
    red, green, blue = images.unbind(dim=1)
    return torch.stack([(red + green + blue) / 3, red - green, (red + green) / 2 - blue], dim=1)


def edge_strength(colours: Tensor) -> Tensor:
    """Return the step per pixel, summed over the opponent colours after a slight blur: (images, height, width)."""
    padded = functional.pad(blur(colours, _FINE_SIGMA), (1, 1, 1, 1), mode="replicate")
    rows = (padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]) / 2
    columns = (padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]) / 2
    return torch.hypot(rows, columns).sum(dim=1)


def object_likeness(colours: Tensor, edges: Tensor) -> Tensor:
    """Return density of edges times unlikeness to the borders, each scaled to 0..1, the product too."""
    dense = scale_to_one(blur(edges.unsqueeze(1), _EDGE_SIGMA).squeeze(1))
    return scale_to_one(dense * scale_to_one(unlikeness_to_borders(colours)))


def unlikeness_to_borders(colours: Tensor) -> Tensor:
    """Return each pixel's Mahalanobis distance from the colours of the borders: the mean over the three most alike.

    The side that is least alike is left out, since an object may be cut off by one border.
    """
    smooth = blur(colours, _FINE_SIGMA)
    sides = (smooth[..., :_BORDER, :], smooth[..., -_BORDER:, :], smooth[..., :, :_BORDER], smooth[..., :, -_BORDER:])
    distances = []
    for side in sides:
        pixels = side.flatten(2)
        mean = pixels.mean(dim=2)
        centred = pixels - mean.unsqueeze(2)
        covariance = centred @ centred.mT / pixels.shape[2] + _COLOUR_FLOOR * torch.eye(3)
        offset = smooth.flatten(2) - mean.unsqueeze(2)
        squared = (offset * torch.linalg.solve(covariance, offset)).sum(dim=1)
        distances.append(squared.clamp_min(0).sqrt().view(len(colours), *colours.shape[2:]))
    three = torch.stack(distances).sort(dim=0).values[:3].mean(dim=0)
    return blur(three.unsqueeze(1), _COARSE_SIGMA).squeeze(1)


def scale_to_one(maps: Tensor) -> Tensor:
    """Stretch each map (images, height, width) to 0..1; a map without any contrast becomes 1 everywhere."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    flat = high - low <= 1e-6 * high.abs().clamp_min(1e-6)
    return torch.where(flat, torch.ones(()), (maps - low) / (high - low).clamp_min(1e-12))


def moments(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centre of each map's mass from its middle, (images, 2), and its extent, (images,), in sides.

    >>> centre, size = moments(torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]))
    >>> centre.tolist(), size.tolist()
    ([[0.25, 0.25]], [0.0])
    """
    height, width = maps.shape[1:]
    shares = maps / maps.sum(dim=(1, 2), keepdim=True)
    rows = (torch.arange(height) + 0.5) / height - 0.5
    columns = (torch.arange(width) + 0.5) / width - 0.5
    row = (shares.sum(dim=2) * rows).sum(dim=1)
    column = (shares.sum(dim=1) * columns).sum(dim=1)
    squared = (shares.sum(dim=2) * (rows - row[:, None]) ** 2).sum(dim=1)
    squared += (shares.sum(dim=1) * (columns - column[:, None]) ** 2).sum(dim=1)
    return torch.stack([row, column], dim=1), squared.clamp_min(0).sqrt()


def blur(maps: Tensor, sigma: float) -> Tensor:
    """Blur (images, channels, height, width) by a Gaussian of so many pixels, the border mirrored."""
    radius = round(3 * sigma)
    weights = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    weights /= weights.sum()
    channels = maps.shape[1]
    padded = functional.pad(maps, (radius, radius, radius, radius), mode="reflect")
    across = functional.conv2d(padded, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
    return functional.conv2d(across, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
