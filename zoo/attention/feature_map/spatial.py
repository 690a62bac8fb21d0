"""CBAM's spatial gate alone: weigh each position by its mean and its maximum over the channels."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.functional.gating import gate_positions, sigmoid_gate
from zoo.functional.validation import check_feature_map_width, check_flag, check_pooling, check_positive_int
from zoo.layers.spatial_conv_norm import SpatialConvNorm
from zoo.registry import ATTENTION


@ATTENTION.register("sam")
class SpatialGate(nn.Module):
    """Spatial gate of the Convolutional Block Attention Module.

    ``M_s(F) = sigmoid(norm(conv([mean F; max F])))`` with F pooled over the channels, a convolution without bias and
    a batch norm; ``F' = M_s(F) * F``. The norm is in the authors' code, not in the paper's formula.

    Args:
        channels: Width of the feature map, at least 1; no parameter depends on it.
        kernel_size: Side of the convolution, odd.
        pooling: Maps that are concatenated, in this order: "mean", "max" or both.
        identity_start: Gate by ``2 * sigmoid`` with the norm at zero, so that the fresh module changes nothing (not
            in the paper).

    Shape:
        (batch, channels, height, width), kept

    Raises:
        ValueError: ``kernel_size`` is not odd, or a pooling branch is unknown.

    >>> import torch
    >>> SpatialGate(32)(torch.ones(2, 32, 5, 5)).shape
    torch.Size([2, 32, 5, 5])

    Source:
        Woo, Park, Lee, Kweon: CBAM: Convolutional Block Attention Module, ECCV 2018, https://arxiv.org/abs/1807.06521
    """

    def __init__(
        self,
        channels: int,
        *,
        kernel_size: int = 7,
        pooling: Sequence[str] = ("mean", "max"),
        identity_start: bool = False,
    ) -> None:
        super().__init__()
        self.channels = check_positive_int("channels", channels)
        self.pooling = check_pooling(pooling)
        self.identity_start = check_flag("identity_start", identity_start)
        self.spatial = SpatialConvNorm(len(self.pooling), kernel_size=kernel_size, zero_output=identity_start)

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the gated feature map."""
        check_feature_map_width(feature_map.shape[1], self.channels)
        return gate_positions(feature_map, self.pooling, self._gate)

    def _gate(self, pooled: Tensor) -> Tensor:
        return sigmoid_gate(self.spatial(pooled), identity_start=self.identity_start)
