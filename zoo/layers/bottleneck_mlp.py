"""The two-layer perceptron with a narrow middle that channel gates use."""

import torch
from torch import Tensor, nn

from zoo.functional.validation import check_positive_int


class BottleneckMLP(nn.Sequential):
    """``W2 relu(W1 z + b1) + b2`` from ``channels`` through a narrow hidden layer back to ``channels``.

    The hidden width is ``max(min_hidden_channels, channels // reduction_ratio)``, so it is never zero.

    Args:
        channels: Width of input and output, at least 1.
        reduction_ratio: What ``channels`` is divided by, an integer of at least 1.
        min_hidden_channels: Floor of the hidden width, at least 1.
        zero_output: Start the last layer at zero, so that a fresh module returns zeros.

    Shape:
        (..., channels) -> (..., channels)

    Raises:
        ValueError: A width or ratio is no integer of at least 1.

    >>> BottleneckMLP(32, reduction_ratio=4).hidden_channels
    8
    >>> BottleneckMLP(8, reduction_ratio=16).hidden_channels
    1
    """

    def __init__(
        self, channels: int, *, reduction_ratio: int = 16, min_hidden_channels: int = 1, zero_output: bool = False
    ) -> None:
        check_positive_int("channels", channels)
        check_positive_int("reduction_ratio", reduction_ratio)
        check_positive_int("min_hidden_channels", min_hidden_channels)
        hidden_channels = max(min_hidden_channels, channels // reduction_ratio)
        output = nn.Linear(hidden_channels, channels)
        if zero_output:
            nn.init.zeros_(output.weight)
            nn.init.zeros_(output.bias)
        super().__init__(nn.Linear(channels, hidden_channels), nn.ReLU(), output)
        self.hidden_channels = hidden_channels

    def forward(self, vectors: Tensor) -> Tensor:
        """Map pooled vectors; under autocast in the parameters' dtype, since casts cost more than these products."""
        device = vectors.device.type
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return super().forward(vectors)
        with torch.autocast(device, enabled=False):
            return super().forward(vectors.to(next(self.parameters()).dtype))
