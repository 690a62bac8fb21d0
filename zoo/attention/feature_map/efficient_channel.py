"""Efficient Channel Attention: weigh each channel by its neighbours' means, with a handful of parameters."""

import math

from torch import Tensor, nn

from zoo.functional.gating import gate_channels, sigmoid_gate
from zoo.functional.validation import (
    check_feature_map_width,
    check_flag,
    check_odd_kernel_size,
    check_positive_int,
)
from zoo.registry import ATTENTION


@ATTENTION.register("eca")
class EfficientChannelAttention(nn.Module):
    """Efficient Channel Attention.

    ``s = sigmoid(conv1d(mean of F over height and width))``, ``F' = s * F``: one convolution without bias along the
    channel axis. Its kernel size is by default the odd number at or above ``|log2(channels) / 2 + 1 / 2|``, cut to
    an integer first, as in the authors' code.

    Args:
        channels: Width of the feature map, at least 1.
        kernel_size: Number of neighbouring channels that decide, odd; None takes it from ``channels``.
        identity_start: Gate by ``2 * sigmoid`` with the convolution at zero, so that the fresh module changes nothing
            (not in the paper).

    Shape:
        (batch, channels, height, width), kept

    Raises:
        ValueError: ``channels`` is no integer of at least 1, or ``kernel_size`` is not odd.

    >>> [EfficientChannelAttention(channels).kernel_size for channels in (1, 16, 64, 256, 512)]
    [1, 3, 3, 5, 5]

    Source:
        Wang et al.: ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks, CVPR 2020,
        https://arxiv.org/abs/1910.03151
    """

    def __init__(self, channels: int, *, kernel_size: int | None = None, identity_start: bool = False) -> None:
        super().__init__()
        self.channels = check_positive_int("channels", channels)
        self.identity_start = check_flag("identity_start", identity_start)
        if kernel_size is None:
            kernel_size = int(math.log2(channels) / 2 + 1 / 2)
            kernel_size += 1 - kernel_size % 2
        self.kernel_size = check_odd_kernel_size("kernel_size", kernel_size)
        self.conv = nn.Conv1d(1, 1, kernel_size, padding=kernel_size // 2, bias=False)
        if identity_start:
            nn.init.zeros_(self.conv.weight)

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the gated feature map."""
        check_feature_map_width(feature_map.shape[1], self.channels)
        return gate_channels(feature_map, ("mean",), self._gate)

    def _gate(self, pooled: Tensor) -> Tensor:
        (squeezed,) = pooled
        return sigmoid_gate(self.conv(squeezed[:, None, :])[:, 0, :], identity_start=self.identity_start)
