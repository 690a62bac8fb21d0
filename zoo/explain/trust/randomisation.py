"""Does a map show what the network has learned? Its weights are scrambled, and the map drawn again."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.explain.heatmap import Heatmap
from zoo.explain.methods import METHODS
from zoo.explain.trust.agreement import rank_agreement

Extent = Literal["last", "all"]


def randomisation_agreement(
    model: nn.Module, images: Tensor, class_index: int, heatmap: Heatmap, extent: Extent, *, seed: int
) -> float:
    """Return the rank agreement of a map with the same method's map of the network with scrambled weights.

    Near 0 is right: the map depends on what was learned. Near 1 the method shows the image alone.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The explained class.
        heatmap: What the method showed of the trained network.
        extent: ``last`` scrambles the last layer with weights, ``all`` every layer.
        seed: Of the scrambling.

    Returns:
        -1 to 1; NaN where one of the maps is even.

    Source:
        Adebayo et al.: Sanity Checks for Saliency Maps, NeurIPS 2018, https://arxiv.org/abs/1810.03292
    """
    return rank_agreement(heatmap, METHODS[heatmap.method](scrambled(model, extent, seed=seed), images, class_index))


@torch.no_grad()
def scrambled(model: nn.Module, extent: Extent, *, seed: int) -> nn.Module:
    """Return a copy of a model whose weights have changed places within their tensors, so that each keeps its size.

    Biases, norms and running statistics stay.
    """
    copied = copy.deepcopy(model)
    layers = [module for module in copied.modules() if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv1d)]
    last = [layer.weight for layer in layers[-1:]]
    everywhere = [parameter for parameter in copied.parameters() if parameter.dim() > 1]
    generator = torch.Generator().manual_seed(seed)
    for weight in last if extent == "last" else everywhere:
        order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
        weight.copy_(weight.flatten()[order].view(weight.shape))
    return copied
