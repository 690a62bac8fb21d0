import pytest
import torch
from torch import Tensor, nn

from zoo.attention.feature_map.efficient_channel import EfficientChannelAttention


def formula(attention: nn.Module, feature_map: Tensor) -> Tensor:
    """F' = s * F with s = sigmoid(conv1d(mean F)) along the channels, zero beyond the ends."""
    (weight,) = attention.state_dict().values()
    kernel_size, channels = weight.numel(), feature_map.shape[1]
    mean = feature_map.sum((2, 3)) / (feature_map.shape[2] * feature_map.shape[3])
    padded = nn.functional.pad(mean, (kernel_size // 2,) * 2)
    logits = sum(weight.flatten()[tap] * padded[:, tap : tap + channels] for tap in range(kernel_size))
    scale = 2 if attention.identity_start else 1
    return feature_map * (scale / (1 + torch.exp(-logits)))[:, :, None, None]


@pytest.mark.parametrize(("channels", "kernel_size"), [(1, 1), (16, 3), (64, 3), (128, 5), (256, 5), (2048, 7)])
def test_kernel_size_grows_with_the_width_as_in_the_authors_code(channels: int, kernel_size: int) -> None:
    attention = EfficientChannelAttention(channels)
    assert [tuple(parameter.shape) for parameter in attention.parameters()] == [(1, 1, kernel_size)]


@pytest.mark.parametrize("kernel_size", [2, 0, -1, 3.0, True])
def test_other_kernels_are_refused_by_value(kernel_size: object) -> None:
    with pytest.raises(ValueError, match=rf"kernel_size \({kernel_size}\) must be an odd integer"):
        EfficientChannelAttention(16, kernel_size=kernel_size)
