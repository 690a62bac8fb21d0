"""Pooling of feature maps by mean and maximum, over positions or over channels.

Both reductions are plain ones: deterministic on every device, exportable, and accumulated in float32 for half
precision. Where several values tie for the maximum, each receives an equal share of the gradient (``torch.amax``),
so CPU and GPU agree; a maximum-pooling layer would send all of it to one of them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.functional import channels_last
from zoo.functional.channels_last import CHANNELS, POSITIONS


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
    return torch.stack([pooled[:, :, 0, 0] for pooled in _pool(feature_map, POSITIONS, pooling)])


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
    return torch.cat(_pool(feature_map, CHANNELS, pooling), dim=1)


def _pool(feature_map: Tensor, over: tuple[int, ...], pooling: Sequence[str]) -> tuple[Tensor, ...]:
    if channels_last.applies(feature_map):
        return _ChannelsLastPool.apply(feature_map, over, pooling)
    return _define_pool(feature_map, over, pooling)


def _define_pool(feature_map: Tensor, over: tuple[int, ...], pooling: Sequence[str]) -> tuple[Tensor, ...]:
    return tuple(
        feature_map.mean(over, keepdim=True) if branch == "mean" else feature_map.amax(over, keepdim=True)
        for branch in pooling
    )


class _ChannelsLastPool(torch.autograd.Function):
    """``_define_pool`` in long passes over channels-last memory."""

    @staticmethod
    def forward(feature_map: Tensor, over: tuple[int, ...], pooling: Sequence[str]) -> tuple[Tensor, ...]:
        return tuple(
            channels_last.reduce_sum(feature_map, over) / _count(feature_map, over)
            if branch == "mean"
            else channels_last.reduce_max(feature_map, over)
            for branch in pooling
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        feature_map, ctx.over, ctx.pooling = inputs
        ctx.save_for_backward(feature_map, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        feature_map, *pooled = ctx.saved_tensors
        over = ctx.over
        if torch.is_grad_enabled():  # A gradient that will itself be differentiated comes from the definition.
            _, pull_back = torch.func.vjp(lambda inputs: _define_pool(inputs, over, ctx.pooling), feature_map)
            return pull_back(gradients)[0], None, None
        total = None
        for branch, result, gradient in zip(ctx.pooling, pooled, gradients, strict=True):
            if branch == "mean":
                share = channels_last.expand(gradient / _count(feature_map, over), feature_map, over)
            else:
                share = channels_last.equals(feature_map, channels_last.expand(result, feature_map, over))
                gradient_of_one = gradient / channels_last.reduce_sum(share, over)
                share *= channels_last.expand(gradient_of_one, feature_map, over)
            total = share if total is None else total + share
        assert total is not None
        return total, None, None


def _count(feature_map: Tensor, over: tuple[int, ...]) -> int:
    return feature_map.shape[1] if over == CHANNELS else feature_map.shape[2] * feature_map.shape[3]
