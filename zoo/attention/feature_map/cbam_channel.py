"""CBAM's channel gate alone: weigh each channel by its mean and its maximum."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.functional.gating import gate_channels, sigmoid_gate
from zoo.functional.validation import check_feature_map_width, check_flag, check_pooling
from zoo.layers.bottleneck_mlp import BottleneckMLP
from zoo.registry import ATTENTION


@ATTENTION.register("cbam_channel")
class CBAMChannelGate(nn.Module):
    """Channel gate of the Convolutional Block Attention Module.

    ``M_c(F) = sigmoid(MLP(mean F) + MLP(max F))`` with F pooled over height and width and one shared MLP with a
    hidden ReLU layer; ``F' = M_c(F) * F``. Both layers of the MLP have biases.

    Args:
        channels: Width of the feature map, at least 1.
        reduction_ratio: The hidden width is ``channels // reduction_ratio``; an integer of at least 1.
        min_hidden_channels: Floor of the hidden width, at least 1.
        pooling: Branches whose outputs are added: "mean", "max" or both.
        identity_start: Gate by ``2 * sigmoid`` with the last layer at zero, so that the fresh module changes nothing
            (not in the paper).

    Shape:
        (batch, channels, height, width), kept

    Raises:
        ValueError: A width or ratio is no integer of at least 1, or a pooling branch is unknown.

    >>> import torch
    >>> CBAMChannelGate(32, reduction_ratio=4)(torch.ones(2, 32, 5, 5)).shape
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

    def forward(self, feature_map: Tensor) -> Tensor:
        """Return the gated feature map."""
        check_feature_map_width(feature_map.shape[1], self.channels)
        return gate_channels(feature_map, self.pooling, self._gate)

    def _gate(self, pooled: Tensor) -> Tensor:
        return sigmoid_gate(self.mlp(pooled).sum(0), identity_start=self.identity_start)
