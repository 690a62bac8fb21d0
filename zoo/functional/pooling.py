"""Pooling of feature maps by mean and maximum, over positions or over channels.

Both reductions are plain ones: deterministic on every device, exportable, and accumulated in float32 for half
precision. Where several values tie for the maximum, each receives an equal share of the gradient (``torch.amax``),
so CPU and GPU agree; a maximum-pooling layer would send all of it to one of them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def pool_over_positions(feature_map: Tensor, pooling: Sequence[str] = ("mean", "max")) -> Tensor:
    """Pool each channel over height and width, once per branch of ``pooling``.

    Args:
        feature_map: Any floating-point map.
        pooling: Branches, "mean" or "max", in the order of the result.

    Shape:
        (batch, channels, height, width) -> (branches, batch, channels)

    >>> pool_over_positions(torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])).flatten().tolist()
    [3.0, 6.0]
    """
    return torch.stack(
        [feature_map.mean((2, 3)) if branch == "mean" else feature_map.amax((2, 3)) for branch in pooling]
    )


def pool_over_channels(feature_map: Tensor, pooling: Sequence[str] = ("mean", "max")) -> Tensor:
    """Pool each position over the channels, once per branch of ``pooling``.

    Args:
        feature_map: Any floating-point map.
        pooling: Branches, "mean" or "max", in the order of the result.

    Shape:
        (batch, channels, height, width) -> (batch, branches, height, width)

    >>> pool_over_channels(torch.tensor([1.0, 5.0]).reshape(1, 2, 1, 1)).flatten().tolist()
    [3.0, 5.0]
    """
    return torch.stack([feature_map.mean(1) if branch == "mean" else feature_map.amax(1) for branch in pooling], dim=1)
