"""Pooling of feature maps by mean and maximum, over positions or over channels.

Both reductions are plain ones: deterministic on every device, exportable, and accumulated in float32 for half
precision. Where several values tie for the maximum, each receives an equal share of the gradient (``torch.amax``),
so CPU and GPU agree; a maximum-pooling layer would send all of it to one of them.
"""

from collections.abc import Sequence
from typing import Any

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
        [feature_map.mean((2, 3)) if branch == "mean" else _maximum(feature_map, (2, 3)) for branch in pooling]
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
    return torch.stack(
        [feature_map.mean(1) if branch == "mean" else _maximum(feature_map, (1,)) for branch in pooling], dim=1
    )


def _maximum(feature_map: Tensor, over: tuple[int, ...]) -> Tensor:
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _Maximum.apply(feature_map, over).squeeze(over)
    return feature_map.amax(over)


class _Maximum(torch.autograd.Function):
    """``amax`` whose backward counts ties in floating point: compiled for a CPU, whole numbers take twice the time."""

    @staticmethod
    def forward(feature_map: Tensor, over: tuple[int, ...]) -> Tensor:
        return feature_map.amax(over, keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, tuple[int, ...]], output: Tensor) -> None:
        feature_map, ctx.over = inputs
        ctx.save_for_backward(feature_map, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        feature_map, maximum = ctx.saved_tensors
        is_maximum = (feature_map == maximum).to(torch.promote_types(gradient.dtype, torch.float32))
        share = gradient / is_maximum.sum(ctx.over, keepdim=True)
        return (is_maximum * share).to(feature_map.dtype), None
