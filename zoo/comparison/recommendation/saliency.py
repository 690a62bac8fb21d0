"""Where a trained net looks: the gradient of the right class's logit, inside and outside the object-like region."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.comparison.recommendation.data_measures import SIDE, blur
from zoo.explain.gradients import gradient_of_logit, with_gradients

_SMOOTHING_SIGMA = 1.0


@dataclass(frozen=True)
class SaliencyShares:
    """How a net's gradient is divided over each image.

    Args:
        mass_outside: Share of the gradient's mass outside the object-like region, (images,).
        area_outside: Share of the pixels outside it, what a net without any preference would give, (images,).
        maps: The gradient's mass per pixel, summing to 1 over each image, (images, SIDE, SIDE).
    """

    mass_outside: Tensor
    area_outside: Tensor
    maps: Tensor

    @property
    def ratio(self) -> float:
        """Mass outside over area outside, over all images: below 1 the net prefers the object-like region."""
        return float(self.mass_outside.sum() / self.area_outside.sum().clamp_min(1e-12))


def gradient_mass(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return how much each pixel moves the logit of the image's own class.

    ``|d logit_label / d image|``, summed over the channels, blurred by a pixel, scaled to SIDE x SIDE and to a sum of 1
    per image; an image whose gradient is 0 everywhere is spread evenly. The model is in eval mode meanwhile.

    Args:
        model: Maps images to logits.
        images: Normalised, (images, channels, height, width).
        labels: int64 (images,).

    Source:
        Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR 2014 workshop,
        https://arxiv.org/abs/1312.6034

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> gradient_mass(net, torch.ones(1, 3, 2, 2), torch.tensor([1])).sum().item()  # doctest: +ELLIPSIS
    1.0...
    """
    with with_gradients(model):
        gradient = gradient_of_logit(model, images, labels)
    mass = gradient.abs().sum(dim=1, keepdim=True)
    mass = functional.interpolate(mass, size=(SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    mass = blur(mass, _SMOOTHING_SIGMA).squeeze(1).clamp_min(0)
    total = mass.sum(dim=(1, 2), keepdim=True)
    even = torch.full((), 1 / SIDE**2)
    return torch.where(total > 0, mass / total.clamp_min(torch.finfo(mass.dtype).tiny), even)


def share_outside(maps: Tensor, region: Tensor) -> SaliencyShares:
    """Divide the mass of maps between a region and what lies outside it.

    Args:
        maps: Non-negative, summing to 1 over each image, (images, SIDE, SIDE).
        region: Of each image, true inside, the same shape.
    """
    outside = ~region
    return SaliencyShares((maps * outside).sum(dim=(1, 2)), outside.double().mean(dim=(1, 2)).float(), maps)
