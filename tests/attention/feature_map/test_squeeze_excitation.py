import pytest
import torch
from torch import Tensor, nn

from zoo.attention.feature_map.squeeze_excitation import SqueezeExcitation


def formula(attention: nn.Module, feature_map: Tensor) -> Tensor:
    """F' = s * F with s = sigmoid(W2 relu(W1 z + b1) + b2) and z the mean of F."""
    weight_1, bias_1, weight_2, bias_2 = attention.state_dict().values()
    mean = feature_map.sum((2, 3)) / (feature_map.shape[2] * feature_map.shape[3])
    hidden = (mean @ weight_1.T + bias_1).clamp(min=0)
    logits = hidden @ weight_2.T + bias_2
    scale = 2 if attention.identity_start else 1
    return feature_map * (scale / (1 + torch.exp(-logits)))[:, :, None, None]


@pytest.mark.parametrize(("channels", "ratio", "hidden"), [(32, 4, 8), (64, 4, 16), (64, 16, 4), (48, 16, 3)])
def test_ratio_divides_the_width_and_is_not_the_hidden_width(channels: int, ratio: int, hidden: int) -> None:
    attention = SqueezeExcitation(channels, reduction_ratio=ratio)
    shapes = [tuple(parameter.shape) for parameter in attention.parameters()]
    assert shapes == [(hidden, channels), (hidden,), (channels, hidden), (channels,)]


@pytest.mark.parametrize("channels", [1, 3, 8, 15, 16, 17])
def test_narrow_maps_still_get_a_gate_that_depends_on_the_input(channels: int) -> None:
    torch.manual_seed(0)
    attention = SqueezeExcitation(channels)
    assert attention.mlp.hidden_channels == 1
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.abs_()
    one, other = torch.rand(2, channels, 5, 5), torch.rand(2, channels, 5, 5) + 1
    assert not torch.equal(attention(one) / one, attention(other) / other)


def test_the_floor_of_the_hidden_width_is_an_option() -> None:
    assert SqueezeExcitation(64, min_hidden_channels=8).mlp.hidden_channels == 8
    assert SqueezeExcitation(256, min_hidden_channels=8).mlp.hidden_channels == 16


def test_zero_weights_halve_the_map() -> None:
    attention = SqueezeExcitation(4)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    feature_map = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(attention(feature_map), feature_map * 0.5)
