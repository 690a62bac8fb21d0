"""Squeeze-and-Excitation: weigh each channel by what all channels say on average."""

from torch import Tensor, nn

from zoo.functional.gating import gate_channels, sigmoid_gate
from zoo.functional.validation import check_feature_map_width, check_flag
from zoo.layers.bottleneck_mlp import BottleneckMLP
from zoo.registry import ATTENTION


@ATTENTION.register("se")
class SqueezeExcitation(nn.Module):
    """Squeeze-and-Excitation.

    ``z = mean of F over height and width``, ``s = sigmoid(W2 relu(W1 z + b1) + b2)``, ``F' = s * F``.

    Args:
        channels: Width of the feature map, at least 1.
        reduction_ratio: The hidden width is ``channels // reduction_ratio``; an integer of at least 1.
        min_hidden_channels: Floor of the hidden width, at least 1.
        identity_start: Gate by ``2 * sigmoid`` with the last layer at zero, so that the fresh module changes nothing
            (not in the paper).

    Shape:
        (batch, channels, height, width), kept

    Raises:
        ValueError: A width or ratio is no integer of at least 1.

    >>> import torch
    >>> SqueezeExcitation(32, reduction_ratio=4)(torch.ones(2, 32, 5, 5)).shape
    torch.Size([2, 32, 5, 5])

    Source:
        Hu, Shen, Sun: Squeeze-and-Excitation Networks, CVPR 2018, https://arxiv.org/abs/1709.01507
    """

    def __init__(
        self,
        channels: int,
        *,
        reduction_ratio: int = 16,
        min_hidden_channels: int = 1,
        identity_start: bool = False,
    ) -> None:
        super().__init__()
        self.channels = channels
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
        return gate_channels(feature_map, ("mean",), self._gate)

    def _gate(self, pooled: Tensor) -> Tensor:
        (squeezed,) = pooled
        return sigmoid_gate(self.mlp(squeezed), identity_start=self.identity_start)
