"""The convolution and norm that a spatial gate runs over its pooled maps."""

from torch import Tensor, nn
from torch.nn import functional

from zoo.functional.narrow_convolution import narrow_convolution, narrow_convolution_applies
from zoo.functional.validation import check_odd_kernel_size


class SpatialConvNorm(nn.Module):
    """``norm(conv(maps))``: a few pooled maps to one map of logits of the same size, without a convolution bias.

    In training a batch norm needs two values to have a variance; a single position of a single image is normalised
    with the running statistics instead, and leaves them as they are.

    Args:
        in_channels: Number of pooled maps.
        kernel_size: Side of the convolution, odd.
        zero_output: Start the norm's scale and shift at zero, so that a fresh module returns zeros.

    Shape:
        (batch, in_channels, height, width) -> (batch, 1, height, width)

    Raises:
        ValueError: ``kernel_size`` is no odd integer of at least 1.
    """

    def __init__(self, in_channels: int, *, kernel_size: int = 7, zero_output: bool = False) -> None:
        super().__init__()
        check_odd_kernel_size("kernel_size", kernel_size)
        self.conv = nn.Conv2d(in_channels, 1, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(1)
        if zero_output:
            nn.init.zeros_(self.norm.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """Return one map of logits."""
        if narrow_convolution_applies(maps, self.conv.weight):
            logits = narrow_convolution(maps, self.conv.weight)
        else:
            logits = self.conv(maps)
        if self.training and logits.numel() == 1:
            norm = self.norm
            return functional.batch_norm(
                logits, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
            )
        return self.norm(logits)
