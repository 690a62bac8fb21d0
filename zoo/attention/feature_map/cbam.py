"""Convolutional Block Attention Module: a channel gate, then a spatial gate."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.functional.gating import gate_channels, gate_positions, sigmoid_gate
from zoo.functional.validation import check_feature_map_width, check_flag, check_pooling
from zoo.layers.bottleneck_mlp import BottleneckMLP
from zoo.layers.spatial_conv_norm import SpatialConvNorm
from zoo.registry import ATTENTION


@ATTENTION.register("cbam")
class ConvolutionalBlockAttentionModule(nn.Module):
    """Convolutional Block Attention Module.

    ``F' = M_c(F) * F`` with ``M_c(F) = sigmoid(MLP(mean F) + MLP(max F))``, F pooled over height and width;
    ``F'' = M_s(F') * F'`` with ``M_s(F') = sigmoid(norm(conv([mean F'; max F'])))``, F' pooled over the channels.
    As in the authors' code, both layers of the MLP have biases, and the convolution has none but is normalised.

    Args:
        channels: Width of the feature map, at least 1.
        reduction_ratio: The MLP's hidden width is ``channels // reduction_ratio``; an integer of at least 1.
        min_hidden_channels: Floor of the hidden width, at least 1.
        kernel_size: Side of the spatial gate's convolution, odd.
        pooling: Branches of both gates: "mean", "max" or both.
        identity_start: Gate by ``2 * sigmoid`` with the MLP's last layer and the norm at zero, so that the fresh
            module changes nothing (not in the paper).

    Shape:
        (batch, channels, height, width), kept

    Raises:
        ValueError: A width or ratio is no integer of at least 1, ``kernel_size`` is not odd, or a pooling branch is
            unknown.

    >>> import torch
    >>> ConvolutionalBlockAttentionModule(32, reduction_ratio=4)(torch.ones(2, 32, 5, 5)).shape
    torch.Size([2, 32, 5, 5])

    Source:
        Woo, Park, Lee, Kweon: CBAM: Convolutional Block Attention Module, ECCV 2018, https://arxiv.org/abs/1807.06521
    """

    def __init__(
        self,
        channels: int,
        *,
        reduction_ratio: int = 16,
        min_hidden_channels: int = 1,
        kernel_size: int = 7,
        pooling: Sequence[str] = ("mean", "max"),
        identity_start: bool = False,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.pooling = check_pooling(pooling)
        self.identity_start = check_flag("identity_start", identity_start)
        self.mlp = BottleneckMLP(
            channels,
            reduction_ratio=reduction_ratio,
            min_hidden_channels=min_hidden_channels,
            zero_output=identity_start,
        )
        self.spatial = SpatialConvNorm(len(self.pooling), kernel_size=kernel_size, zero_output=identity_start)

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the gated feature map."""
        check_feature_map_width(feature_map.shape[1], self.channels)
        channel_gated = gate_channels(feature_map, self.pooling, self._channel_gate)
        return gate_positions(channel_gated, self.pooling, self._spatial_gate)

    def _channel_gate(self, pooled: Tensor) -> Tensor:
        return sigmoid_gate(self.mlp(pooled).sum(0), identity_start=self.identity_start)

    def _spatial_gate(self, pooled: Tensor) -> Tensor:
        return sigmoid_gate(self.spatial(pooled), identity_start=self.identity_start)
