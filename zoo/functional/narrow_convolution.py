"""Convolution of maps with very few channels, as a matrix product, for bfloat16 on the CPU.

A convolution from two channels to one leaves the CPU's convolution kernels, made for many channels, nearly idle: its
backward costs as much as that of a layer from 16 to 16. Written as a product of row windows with a banded matrix it
does more arithmetic, nearly all of it on zeros, but in the form that matrix units are made for.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional import channels_last

_MAX_WIDTH = 32  # The share of zeros in the banded matrix grows with the width of the map.


def narrow_convolution_applies(maps: Tensor, weight: Tensor) -> bool:
    """Return whether maps (batch, in_channels, height, width) are worth the matrix product.

    The weight may be of another dtype only where autocast would cast it.
    """
    return (
        channels_last.runs_eagerly_on_cpu(maps)
        and maps.dtype == torch.bfloat16
        and (weight.dtype == maps.dtype or torch.is_autocast_enabled("cpu"))
        and maps.shape[3] <= _MAX_WIDTH
    )


def narrow_convolution(maps: Tensor, weight: Tensor) -> Tensor:
    """Convolve with stride 1, zero padding that keeps the size, and no bias, in the dtype of ``maps``.

    Shape:
        (batch, in_channels, height, width) and (out_channels, in_channels, kernel_size, kernel_size), the last odd
        -> (batch, out_channels, height, width)
    """
    with torch.autocast("cpu", enabled=False):
        return _NarrowConvolution.apply(maps, weight.to(maps.dtype))


class _NarrowConvolution(torch.autograd.Function):
    @staticmethod
    def forward(maps: Tensor, weight: Tensor) -> Tensor:
        return _product(_row_windows(maps, weight.shape[3]), weight, maps.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        maps, weight = ctx.saved_tensors
        out_channels, in_channels, kernel_size, _ = weight.shape
        if torch.is_grad_enabled():  # A gradient that will itself be differentiated comes from the plain operation.
            _, pull_back, *_ = torch.func.vjp(
                lambda maps, weight: functional.conv2d(maps, weight, padding=kernel_size // 2), maps, weight
            )
            return pull_back(gradient)
        batch, _, height, width = maps.shape
        to_maps = None
        if ctx.needs_input_grad[0]:
            # The gradient is convolved with the weight turned around.
            turned = weight.flip(2, 3).transpose(0, 1)
            to_maps = _product(_row_windows(gradient, kernel_size), turned, gradient.shape)
        to_rows = gradient.transpose(1, 2).reshape(batch * height, out_channels * width)
        to_band = _row_windows(maps, kernel_size).t() @ to_rows
        # The gradient of a tap is the sum of the band's entries that it fills: one more product, with a 0/1 matrix.
        to_band = to_band.view(-1, width, out_channels, width).transpose(1, 2).reshape(-1, width * width).float()
        fills = _taps(width, kernel_size, maps.device).flatten()[:, None] == torch.arange(kernel_size)
        to_weight = (to_band @ fills.float()).view(kernel_size, in_channels, out_channels, kernel_size)
        return to_maps, to_weight.permute(2, 1, 0, 3).to(weight.dtype)


def _product(windows: Tensor, weight: Tensor, shape: torch.Size) -> Tensor:
    batch, _, height, width = shape
    return (windows @ _band(weight, width)).view(batch, height, -1, width).transpose(1, 2).contiguous()


def _row_windows(maps: Tensor, kernel_size: int) -> Tensor:
    """Put the rows that each output row looks at side by side: (batch * height, kernel_size * channels * width)."""
    batch, channels, height, width = maps.shape
    rows = maps.transpose(1, 2).reshape(batch, height, channels * width)
    padded = functional.pad(rows, (0, 0, kernel_size // 2, kernel_size // 2))
    return padded.unfold(1, kernel_size, 1).transpose(2, 3).reshape(batch * height, -1)


def _band(weight: Tensor, width: int) -> Tensor:
    """Spread the weight to (kernel_size * in_channels * width, out_channels * width), zero where out of reach."""
    kernel_size = weight.shape[3]
    spread = functional.pad(weight, (0, 1))[..., _taps(width, kernel_size, weight.device)]
    return spread.permute(2, 1, 3, 0, 4).reshape(-1, weight.shape[0] * width)


def _taps(width: int, kernel_size: int, device: torch.device) -> Tensor:
    """Which tap joins each input column to each output column; ``kernel_size`` where none does."""
    columns = torch.arange(width, device=device)
    taps = columns[:, None] - columns[None, :] + kernel_size // 2
    return taps.where((taps >= 0) & (taps < kernel_size), kernel_size)
