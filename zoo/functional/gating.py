"""Gates computed from a pooled feature map and multiplied onto it.

``gate_channels`` and ``gate_positions`` are defined by one line each: ``feature_map * gate_of(pooled)``. On
channels-last maps on the CPU the same is computed in fewer passes over memory (see ``channels_last``).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.functional import channels_last
from zoo.functional.channels_last import CHANNELS, POSITIONS
from zoo.functional.pooling import pool_over_channels, pool_over_positions


def sigmoid_gate(logits: Tensor, *, identity_start: bool = False) -> Tensor:
    """Return a gate in (0, 1), or in (0, 2) with ``identity_start``: 2 * sigmoid, exactly 1 at zero.

    >>> sigmoid_gate(torch.zeros(1)).item(), sigmoid_gate(torch.zeros(1), identity_start=True).item()
    (0.5, 1.0)
    """
    gate = torch.sigmoid(logits)
    return 2 * gate if identity_start else gate


def gate_channels(feature_map: Tensor, pooling: Sequence[str], gate_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Pool over height and width, compute a gate per channel, and multiply it onto the map.

    Args:
        feature_map: (batch, channels, height, width)
        pooling: Branches, "mean" or "max".
        gate_of: From pooled vectors (branches, batch, channels) to the gate (batch, channels), each image by itself
            or not.

    Returns:
        The gated map, of the shape, dtype and memory layout of ``feature_map``.

    >>> gate_channels(torch.full((1, 1, 1, 2), 3.0), ["mean"], lambda pooled: pooled[0] / 6).tolist()
    [[[[1.5, 1.5]]]]
    """
    if channels_last.applies(feature_map):
        handover = _Handover()
        *pooled, feature_map = _ChannelsLastPool.apply(feature_map, POSITIONS, tuple(pooling), handover)
        gate = gate_of(torch.stack([vectors.flatten(1) for vectors in pooled]))[:, :, None, None]
        return _ChannelsLastGate.apply(feature_map, gate.to(feature_map.dtype), POSITIONS, handover)
    gate = gate_of(pool_over_positions(feature_map, pooling))
    return feature_map * gate[:, :, None, None].to(feature_map.dtype)


def gate_positions(feature_map: Tensor, pooling: Sequence[str], gate_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Pool over the channels, compute a gate per position, and multiply it onto the map.

    Args:
        feature_map: (batch, channels, height, width)
        pooling: Branches, "mean" or "max".
        gate_of: From pooled maps (batch, branches, height, width) to the gate (batch, 1, height, width).

    Returns:
        The gated map, of the shape, dtype and memory layout of ``feature_map``.

    >>> gate_positions(torch.full((1, 2, 1, 1), 3.0), ["max"], lambda pooled: pooled / 6).flatten().tolist()
    [1.5, 1.5]
    """
    if channels_last.applies(feature_map):
        handover = _Handover()
        *pooled, feature_map = _ChannelsLastPool.apply(feature_map, CHANNELS, tuple(pooling), handover)
        gate = gate_of(torch.cat(pooled, dim=1))
        return _ChannelsLastGate.apply(feature_map, gate.to(feature_map.dtype), CHANNELS, handover)
    gate = gate_of(pool_over_channels(feature_map, pooling))
    return feature_map * gate.to(feature_map.dtype)


class _Handover:
    """What the backward of a gate leaves for the backward of its pooling: one pass then writes the sum of both.

    It holds within one run of the autograd engine only; a run that asked for the gate's parameters alone leaves it
    untaken, and a later one must not find it.
    """

    def __init__(self) -> None:
        self._left: tuple[int, Tensor, Tensor] | None = None

    def leave(self, gradient: Tensor, gate: Tensor) -> None:
        self._left = (torch._C._current_graph_task_id(), gradient, gate)

    def take(self) -> tuple[Tensor, Tensor] | None:
        left, self._left = self._left, None
        if left is None or left[0] != torch._C._current_graph_task_id():
            return None
        return left[1:]


class _ChannelsLastPool(torch.autograd.Function):
    """Pool over the axes ``over``, keeping them with size 1; the last output is the map, on its way to the gate."""

    @staticmethod
    def forward(
        feature_map: Tensor, over: tuple[int, ...], pooling: tuple[str, ...], _handover: _Handover
    ) -> tuple[Tensor, ...]:
        pooled = []
        for branch in pooling:
            reduce = channels_last.reduce_sum if branch == "mean" else channels_last.reduce_max
            reduced = reduce(feature_map, over)
            pooled.append(reduced / _count(feature_map, over) if branch == "mean" else reduced)
        return *pooled, feature_map.view_as(feature_map)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        feature_map, ctx.over, ctx.pooling, ctx.handover = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(feature_map, *output[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None, None]:
        feature_map, *pooled = ctx.saved_tensors
        over, pooling = ctx.over, ctx.pooling
        if torch.is_grad_enabled():  # A gradient that will itself be differentiated comes from the plain operations.
            outputs, pull_back, *_ = torch.func.vjp(lambda inputs: _define_pool(inputs, over, pooling), feature_map)
            filled = tuple(
                torch.zeros_like(output) if gradient is None else gradient
                for output, gradient in zip(outputs, gradients, strict=True)
            )
            return pull_back(filled)[0], None, None, None
        *of_pooled, passed_through = gradients
        of_branch = dict(zip(pooling, of_pooled, strict=True))
        total = None
        if (of_mean := of_branch.get("mean")) is not None:
            total = of_mean / _count(feature_map, over)
        if (left := ctx.handover.take()) is not None:
            through_gate, gate = left
            total = channels_last.multiply(through_gate, gate, over, plus=total)
        if (of_max := of_branch.get("max")) is not None:
            maximum = pooled[pooling.index("max")]
            is_maximum = channels_last.equals(feature_map, channels_last.expand(maximum, feature_map, over))
            share = of_max / channels_last.reduce_sum(is_maximum, over)
            total = channels_last.multiply(is_maximum, share, over, plus=total)
        if total is None:
            total = feature_map.new_zeros(())
        if passed_through is not None:
            total = total + passed_through
        return total.expand_as(feature_map), None, None, None


class _ChannelsLastGate(torch.autograd.Function):
    """``feature_map * gate``, the gate being of size 1 along ``over``."""

    @staticmethod
    def forward(feature_map: Tensor, gate: Tensor, over: tuple[int, ...], _handover: _Handover) -> Tensor:
        return channels_last.multiply(feature_map, gate, over)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        feature_map, gate, ctx.over, ctx.handover = inputs
        ctx.save_for_backward(feature_map, gate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        feature_map, gate = ctx.saved_tensors
        if torch.is_grad_enabled():  # A gradient that will itself be differentiated comes from the plain operations.
            return *torch.func.vjp(torch.mul, feature_map, gate)[1](gradient), None, None
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        ctx.handover.leave(gradient, gate)
        return None, channels_last.reduce_sum(gradient * feature_map, ctx.over), None, None


def _define_pool(feature_map: Tensor, over: tuple[int, ...], pooling: tuple[str, ...]) -> tuple[Tensor, ...]:
    pooled = (
        feature_map.mean(over, keepdim=True) if branch == "mean" else feature_map.amax(over, keepdim=True)
        for branch in pooling
    )
    return *pooled, feature_map


def _count(feature_map: Tensor, over: tuple[int, ...]) -> int:
    return feature_map.shape[1] if over == CHANNELS else feature_map.shape[2] * feature_map.shape[3]
