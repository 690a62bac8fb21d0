"""From the output of a gate's last layer to a gated feature map."""

import torch
from torch import Tensor


def sigmoid_gate(logits: Tensor, *, identity_start: bool = False) -> Tensor:
    """Return a gate in (0, 1), or in (0, 2) with ``identity_start``: 2 * sigmoid, exactly 1 at zero.

    >>> sigmoid_gate(torch.zeros(1)).item(), sigmoid_gate(torch.zeros(1), identity_start=True).item()
    (0.5, 1.0)
    """
    gate = torch.sigmoid(logits)
    return 2 * gate if identity_start else gate


def apply_gates(feature_map: Tensor, *gates: Tensor) -> Tensor:
    """Multiply a feature map by one or more gates, each broadcast over the axes it lacks; dtype and layout are kept.

    Shape:
        (batch, channels, height, width), with gates (batch, channels, 1, 1) or (batch, 1, height, width)
    """
    for gate in gates:
        feature_map = feature_map * gate.to(feature_map.dtype)
    return feature_map
