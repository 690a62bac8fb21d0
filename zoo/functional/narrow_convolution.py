"""Convolution of maps with very few channels, as a matrix product, for bfloat16 on the CPU.

A convolution from two channels to one leaves the CPU's convolution kernels, made for many channels, nearly idle: its
backward costs as much as that of a layer from 16 to 16. Written as a product of row windows with a banded matrix it
does more arithmetic, nearly all of it on zeros, but in the form that matrix units are made for. Its backward is made of
the same products, eagerly and compiled, and can be differentiated.
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
    compiling = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    return (
        (channels_last.runs_eagerly_on_cpu(maps) or (compiling and maps.device.type == "cpu"))
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
        batch, _, height, width = maps.shape
        to_maps = None
        if ctx.needs_input_grad[0]:
            # The gradient is convolved with the weight turned around.
            to_maps = _NarrowConvolution.apply(gradient, weight.flip(2, 3).transpose(0, 1))
        to_rows = gradient.transpose(1, 2).reshape(batch * height, out_channels * width)
        to_band = _row_windows(maps, kernel_size).t() @ to_rows
        # The gradient of a tap is the sum of the band's entries that it fills.
        to_band = to_band.view(-1, width, out_channels, width).transpose(1, 2).reshape(-1, width * width)
        to_band = to_band.to(torch.promote_types(to_band.dtype, torch.float32))
        to_weight = to_band @ _fills(width, kernel_size, to_band).t()
        to_weight = to_weight.view(kernel_size, in_channels, out_channels, kernel_size)
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
    spread = weight.reshape(-1, kernel_size) @ _fills(width, kernel_size, weight)
    spread = spread.view(*weight.shape[:3], width, width)
    return spread.permute(2, 1, 3, 0, 4).reshape(-1, weight.shape[0] * width)


def _fills(width: int, kernel_size: int, like: Tensor) -> Tensor:
    """Return 1 where a tap joins an input column to an output column, else 0: (kernel_size, width * width).

    A product with it is exact, each entry being one weight, and unlike an indexed sum it is deterministic.
    """
    columns = torch.arange(width, device=like.device)
    taps = (columns[:, None] - columns[None, :] + kernel_size // 2).flatten()
    return (torch.arange(kernel_size, device=like.device)[:, None] == taps).to(like.dtype)
