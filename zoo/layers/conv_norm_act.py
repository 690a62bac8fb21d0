"""Convolution, batch norm and activation: the unit every backbone here is made of."""

import math
from collections import OrderedDict

from torch import nn


def convolution(
    in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Create a "same"-padded convolution with He's initialisation for ReLU, variance kept in the backward pass.

    Weights are drawn from ``N(0, 2 / fan_out)`` with ``fan_out = kernel_size^2 * out_channels / groups``; the groups
    are divided out, which torch's own ``kaiming_normal_`` does not do for depthwise convolutions. Biases start at 0.

    Args:
        in_channels: Channels of the input, at least 1.
        out_channels: Channels of the output, at least 1.
        kernel_size: Side of the square kernel, odd.
        stride: Step of the kernel in both directions.
        groups: Divides both channel counts; ``in_channels`` makes the convolution depthwise.
        bias: Add a learned bias; off where a norm follows.

    Source: He et al., "Delving Deep into Rectifiers", ICCV 2015, https://arxiv.org/abs/1502.01852
    """
    layer = nn.Conv2d(
        in_channels, out_channels, kernel_size, stride=stride, padding=kernel_size // 2, groups=groups, bias=bias
    )
    nn.init.normal_(layer.weight, std=math.sqrt(2 * groups / (kernel_size**2 * out_channels)))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class ConvNormAct(nn.Sequential):
    """Convolution without bias, batch norm, activation; children are named ``0``, ``1``, ``2`` as in torchvision.

    Args:
        in_channels: Channels of the input, at least 1.
        out_channels: Channels of the output, at least 1.
        kernel_size: Side of the square kernel, odd; the map is padded so that stride 1 keeps its size.
        stride: Step of the kernel in both directions.
        groups: Divides both channel counts; ``in_channels`` makes the convolution depthwise.
        activation: Class of the activation, built without arguments, or ``None`` for a linear output.
        eps: Added to the variance in the norm.
        momentum: Share of the newest batch in the running statistics.

    Shape:
        ``(batch, in_channels, height, width)`` to
        ``(batch, out_channels, ceil(height / stride), ceil(width / stride))``.

    >>> import torch
    >>> ConvNormAct(3, 8, stride=2)(torch.zeros(1, 3, 5, 7)).shape
    torch.Size([1, 8, 3, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: type[nn.Module] | None = nn.ReLU,
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["0"] = convolution(in_channels, out_channels, kernel_size, stride=stride, groups=groups)
        layers["1"] = nn.BatchNorm2d(out_channels, eps=eps, momentum=momentum)
        if activation is not None:
            layers["2"] = activation()
        super().__init__(layers)
