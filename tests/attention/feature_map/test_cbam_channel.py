import pytest
import torch
from torch import Tensor, nn

from zoo.attention.feature_map.cbam_channel import CBAMChannelGate


def formula(attention: nn.Module, feature_map: Tensor) -> Tensor:
    """F' = M_c * F with M_c = sigmoid(MLP(mean F) + MLP(max F)), one MLP for both."""
    weight_1, bias_1, weight_2, bias_2 = attention.state_dict().values()
    flat = feature_map.flatten(2)

    def mlp(pooled: Tensor) -> Tensor:
        return (pooled @ weight_1.T + bias_1).clamp(min=0) @ weight_2.T + bias_2

    logits = mlp(flat.sum(2) / flat.shape[2]) + mlp(flat.sort(2).values[:, :, -1])
    scale = 2 if attention.identity_start else 1
    return feature_map * (scale / (1 + torch.exp(-logits)))[:, :, None, None]


@pytest.mark.parametrize(("ratio", "weights"), [(4, 2048), (8, 1024), (16, 512)])
def test_the_ratio_sets_the_number_of_weights(ratio: int, weights: int) -> None:
    attention = CBAMChannelGate(64, reduction_ratio=ratio)
    assert sum(parameter.numel() for parameter in attention.parameters() if parameter.dim() == 2) == weights


def balanced_peak(height: float) -> Tensor:
    """Every channel has mean 0 and one peak of the given height."""
    feature_map = torch.zeros(1, 4, 6, 6)
    feature_map[:, :, 2, 3], feature_map[:, :, 4, 1] = height, -height
    return feature_map


def test_the_maximum_branch_is_alive() -> None:
    torch.manual_seed(0)
    attention = CBAMChannelGate(4, reduction_ratio=1)
    low, high = (attention(balanced_peak(height))[0, :, 2, 3] / height for height in (1.0, 10.0))
    assert not torch.allclose(low, high, atol=1e-3)


def test_without_the_maximum_branch_a_balanced_peak_is_invisible() -> None:
    torch.manual_seed(0)
    attention = CBAMChannelGate(4, reduction_ratio=1, pooling=["mean"])
    low, high = (attention(balanced_peak(height))[0, :, 2, 3] / height for height in (1.0, 10.0))
    torch.testing.assert_close(low, high)


def test_zero_weights_halve_the_map() -> None:
    attention = CBAMChannelGate(4)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    feature_map = balanced_peak(3.0)
    assert torch.equal(attention(feature_map), feature_map * 0.5)


@pytest.mark.parametrize("pooling", ["mean", [], ["mean", "mean"], ["median"], None])
def test_unknown_pooling_is_refused(pooling: object) -> None:
    with pytest.raises(ValueError, match="must be a list of one or more different names out of mean, max"):
        CBAMChannelGate(4, pooling=pooling)
