"""Integrated gradients: the difference of a logit to that of an empty image, shared out over the pixels."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.explain.gradients import check_image, gradient_of_logit, predict, with_gradients
from zoo.explain.heatmap import Heatmap

NUM_STEPS = 64
BATCH_SIZE = 16


class Completeness(NamedTuple):
    """What integrated gradients must add up to, and what they do.

    Args:
        total: The difference of the logits of the image and of the empty one.
        attributed: The sum over all pixels.
    """

    total: float
    attributed: float

    @property
    def gap(self) -> float:
        """The missing part as a fraction of the total; 0 is exact."""
        return abs(self.attributed - self.total) / max(abs(self.total), 1e-6)


def integrated_gradients(model: nn.Module, images: Tensor, class_index: int, *, num_steps: int = NUM_STEPS) -> Heatmap:
    """Return how much each pixel adds to the logit of a class; see :func:`attribute`."""
    return attribute(model, images, class_index, num_steps=num_steps)[0]


def attribute(
    model: nn.Module, images: Tensor, class_index: int, *, num_steps: int = NUM_STEPS
) -> tuple[Heatmap, Completeness]:
    """Return integrated gradients and whether they add up.

    ``(x - x') * integral over t from 0 to 1 of d logit(x' + t (x - x')) / dx``, summed over the channels; x' is the
    image of the mean colour, zero after normalisation. The integral is Captum's, by Gauss-Legendre quadrature.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The class.
        num_steps: Points of the quadrature, at least 1.

    Raises:
        ValueError: Captum is not installed, or the model has no gradient.

    Source:
        Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017, https://arxiv.org/abs/1703.01365
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError:
        raise ValueError("integrated gradients need Captum: pip install 'vision-attention-zoo[explain]'") from None
    check_image(images)
    with with_gradients(model):
        gradient_of_logit(model, images, class_index)  # says what is wrong where there are no gradients
        shares = IntegratedGradients(model).attribute(
            images.detach().clone(), target=class_index, n_steps=num_steps, internal_batch_size=BATCH_SIZE
        )
    ends = predict(model, torch.cat([images, torch.zeros_like(images)]))[:, class_index].double()
    values = shares.detach()[0].sum(0).float().cpu()
    completeness = Completeness(total=float(ends[0] - ends[1]), attributed=float(values.double().sum()))
    return Heatmap("integrated_gradients", "Integrated gradients", values, is_signed=True), completeness
