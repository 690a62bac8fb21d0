"""Reductions and expansions of channels-last maps on the CPU, in long passes over memory.

In channels-last memory the channels of one position lie side by side. Broadcasting or reducing over an axis of 16
channels then works in strides of 16 values, too short for vector instructions, and costs several times what moving
the memory costs. The functions here compute the same with operands that are long in memory: a row of a map is one
vector of ``width * channels`` values. They take the reduced axes as ``over``, either ``POSITIONS`` or ``CHANNELS``,
and keep them with size 1. ``applies`` tells where they pay; elsewhere the plain definitions in ``pooling`` and
``gating`` run.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

CHANNELS = (1,)
POSITIONS = (2, 3)

_DTYPES = (torch.bfloat16, torch.float32, torch.float64)


def applies(feature_map: Tensor) -> bool:
    """Return whether a map is worth the long passes: on the CPU, channels last, of a dtype with fast arithmetic."""
    return (
        runs_eagerly_on_cpu(feature_map)
        and feature_map.dtype in _DTYPES
        and feature_map.dim() == 4
        and feature_map.numel() > 0
        and feature_map.is_contiguous(memory_format=torch.channels_last)
    )


def runs_eagerly_on_cpu(tensor: Tensor) -> bool:
    """Return whether operations on a CPU tensor run as they are called.

    Compilers, exporters and dispatch modes (operation counters, fake tensors) see the plain definitions instead.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not is_in_torch_dispatch_mode()
        and tensor.device.type == "cpu"
    )


def reduce_sum(feature_map: Tensor, over: tuple[int, ...]) -> Tensor:
    """Sum over the channels, or over height and then width (with the sums over height rounded to the map's dtype)."""
    batch, channels, height, width = feature_map.shape
    if over == POSITIONS:
        return _rows(feature_map).sum(1).view(batch, width, channels).sum(1)[:, :, None, None]
    flat = feature_map.permute(0, 2, 3, 1).reshape(-1, channels)
    with torch.autocast("cpu", enabled=False):
        sums = torch.mm(flat, flat.new_ones(channels, 1))  # Sums of neighbours are fastest as a matrix product.
    return sums.view(batch, 1, height, width)


def reduce_max(feature_map: Tensor, over: tuple[int, ...]) -> Tensor:
    """Take the maximum over the channels, or over height and then width."""
    if over == POSITIONS:
        batch, channels, _, width = feature_map.shape
        return _rows(feature_map).amax(1).view(batch, width, channels).amax(1)[:, :, None, None]
    return feature_map.contiguous().amax(1, keepdim=True)


def expand(reduced: Tensor, like: Tensor, over: tuple[int, ...]) -> Tensor:
    """Show a reduced map at the size of ``like``: every channel filled, or one row filled and seen at every height."""
    if over == POSITIONS:
        batch, channels, height, width = like.shape
        row = reduced.view(batch, channels).repeat(1, width).view(batch, 1, width, channels)
        return row.expand(batch, height, width, channels).permute(0, 3, 1, 2)
    return reduced.expand_as(like).contiguous(memory_format=torch.channels_last)


def multiply(feature_map: Tensor, reduced: Tensor, over: tuple[int, ...], plus: Tensor | None = None) -> Tensor:
    """Return ``feature_map * reduced + plus``, where ``plus`` is a map or reduced, too."""
    reduced = expand(reduced, feature_map, over)
    if plus is None:
        return feature_map * reduced
    if plus.shape != feature_map.shape:
        plus = expand(plus, feature_map, over)
    return torch.addcmul(plus, feature_map, reduced)


def equals(feature_map: Tensor, other: Tensor) -> Tensor:
    """Return 1 where two maps are equal and 0 elsewhere, in their own dtype: vectorised, unlike a boolean map."""
    return torch.eq(feature_map, other, out=torch.empty_like(feature_map))


def _rows(feature_map: Tensor) -> Tensor:
    batch, channels, height, width = feature_map.shape
    return feature_map.permute(0, 2, 3, 1).reshape(batch, height, width * channels)
