"""From the output of a gate's last layer to a gated feature map."""

from typing import Any

import torch
from torch import Tensor

from zoo.functional import channels_last
from zoo.functional.channels_last import CHANNELS, POSITIONS


def sigmoid_gate(logits: Tensor, *, identity_start: bool = False) -> Tensor:
    """Return a gate in (0, 1), or in (0, 2) with ``identity_start``: 2 * sigmoid, exactly 1 at zero.

    >>> sigmoid_gate(torch.zeros(1)).item(), sigmoid_gate(torch.zeros(1), identity_start=True).item()
    (0.5, 1.0)
    """
    gate = torch.sigmoid(logits)
    return 2 * gate if identity_start else gate


def gate_channels(feature_map: Tensor, gate: Tensor) -> Tensor:
    """Multiply each channel of a feature map by its gate; the map's dtype and memory layout are kept.

    Shape:
        (batch, channels, height, width) and (batch, channels) -> (batch, channels, height, width)
    """
    return _apply_gate(feature_map, gate[:, :, None, None], POSITIONS)


def gate_positions(feature_map: Tensor, gate: Tensor) -> Tensor:
    """Multiply each position of a feature map by its gate; the map's dtype and memory layout are kept.

    Shape:
        (batch, channels, height, width) and (batch, 1, height, width) -> (batch, channels, height, width)
    """
    return _apply_gate(feature_map, gate, CHANNELS)


def _apply_gate(feature_map: Tensor, gate: Tensor, over: tuple[int, ...]) -> Tensor:
    gate = gate.to(feature_map.dtype)
    if channels_last.applies(feature_map):
        return _ChannelsLastGate.apply(feature_map, gate, over)
    return feature_map * gate


class _ChannelsLastGate(torch.autograd.Function):
    """``feature_map * gate`` in long passes over channels-last memory, the gate being of size 1 along ``over``."""

    @staticmethod
    def forward(feature_map: Tensor, gate: Tensor, over: tuple[int, ...]) -> Tensor:
        return feature_map * channels_last.expand(gate, feature_map, over)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        feature_map, gate, ctx.over = inputs
        ctx.save_for_backward(feature_map, gate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        feature_map, gate = ctx.saved_tensors
        if torch.is_grad_enabled():  # A gradient that will itself be differentiated comes from the definition.
            return *torch.func.vjp(torch.mul, feature_map, gate)[1](gradient), None
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        to_map = to_gate = None
        if ctx.needs_input_grad[0]:
            to_map = gradient * channels_last.expand(gate, feature_map, ctx.over)
        if ctx.needs_input_grad[1]:
            to_gate = channels_last.reduce_sum(gradient * feature_map, ctx.over)
        return to_map, to_gate, None
