"""Attention as maps over the image: of the last layer, and rolled out through all layers."""

from torch import Tensor, nn

from zoo.explain.gradients import check_image
from zoo.explain.heatmap import Heatmap
from zoo.explain.token_weights import TokenAttention, read_token_attention


def last_attention(model: nn.Module, images: Tensor, _class_index: int = 0) -> Heatmap:
    """Return how much each place is looked at in the last layer, mean over its heads.

    The map does not depend on the class.

    Args:
        model: A network with attention over tokens.
        images: One image, (1, channels, height, width).

    Raises:
        ValueError: The model has no attention over tokens.
    """
    attention = _read(model, images)
    grid = attention.looked_at(len(attention.weights) - 1).mean(0)
    return Heatmap("last_attention", "Last attention", attention.spread(grid))


def attention_rollout(model: nn.Module, images: Tensor, _class_index: int = 0) -> Heatmap:
    """Return how much of each place reaches what the classifier reads, if tokens mix by their attention weights alone.

    ``r A_L ... A_1`` with ``A_l = (mean over heads of W_l + I) / 2``, the half identity standing for the skip; r is how
    much the classifier reads of each token. The map does not depend on the class, and knows nothing of the values that
    the weights multiply nor of the perceptrons.

    Args:
        model: A network with attention over tokens.
        images: One image, (1, channels, height, width).

    Raises:
        ValueError: The model has no attention over tokens.

    Source:
        Abnar, Zuidema: Quantifying Attention Flow in Transformers, ACL 2020, https://arxiv.org/abs/2005.00928
    """
    attention = _read(model, images)
    return Heatmap("attention_rollout", "Attention rollout", attention.spread(roll_out(attention)))


def roll_out(attention: TokenAttention) -> Tensor:
    """Return the rolled out attention on the grid, (rows, columns); see :func:`attention_rollout`."""
    flow = attention.reading.double()
    for weights in reversed(attention.weights):
        flow = (flow @ weights.mean(0).double() + flow) / 2
    return attention.layout.to_grid(flow.float())


def _read(model: nn.Module, images: Tensor) -> TokenAttention:
    check_image(images)
    attention = read_token_attention(model, images)
    if attention is None:
        raise ValueError("the model has no attention over tokens, which this map is made of")
    return attention
