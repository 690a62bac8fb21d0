import pytest
import torch
from torch import Tensor, nn

from zoo.attention.feature_map.spatial import SpatialGate


def formula(attention: nn.Module, feature_map: Tensor) -> Tensor:
    """F' = M_s * F with M_s = sigmoid(norm(conv([mean F; max F])))."""
    state = attention.state_dict()
    mean = feature_map.sum(1) / feature_map.shape[1]
    maps = torch.stack([mean, feature_map.sort(1).values[:, -1]], dim=1)
    logits = convolve(maps, state["spatial.conv.weight"][0])
    if attention.training and logits.numel() > 1:
        center = logits.sum() / logits.numel()
        variance = ((logits - center) ** 2).sum() / logits.numel()
    else:
        center, variance = state["spatial.norm.running_mean"], state["spatial.norm.running_var"]
    logits = (logits - center) / torch.sqrt(variance + 1e-5) * state["spatial.norm.weight"] + state["spatial.norm.bias"]
    scale = 2 if attention.identity_start else 1
    return feature_map * (scale / (1 + torch.exp(-logits)))[:, None]


def convolve(maps: Tensor, weight: Tensor) -> Tensor:
    height, width = maps.shape[2:]
    reach = weight.shape[1] // 2
    padded = nn.functional.pad(maps, (reach,) * 4)
    total = torch.zeros_like(maps[:, 0])
    for row in range(weight.shape[1]):
        for column in range(weight.shape[2]):
            window = padded[:, :, row : row + height, column : column + width]
            total = total + (window * weight[:, row, column][:, None, None]).sum(1)
    return total


def test_parameters_are_the_convolution_and_a_norm_of_one_channel() -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in SpatialGate(64).named_parameters()}
    assert shapes == {"spatial.conv.weight": (1, 2, 7, 7), "spatial.norm.weight": (1,), "spatial.norm.bias": (1,)}


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_any_odd_kernel_keeps_the_size(kernel_size: int) -> None:
    assert SpatialGate(4, kernel_size=kernel_size)(torch.ones(2, 4, 3, 5)).shape == (2, 4, 3, 5)


@pytest.mark.parametrize("kernel_size", [2, 0, -3, 3.0, True])
def test_other_kernels_are_refused_by_value(kernel_size: object) -> None:
    with pytest.raises(ValueError, match=rf"kernel_size \({kernel_size}\) must be an odd integer"):
        SpatialGate(4, kernel_size=kernel_size)


def test_mean_and_maximum_are_told_apart_and_come_in_this_order() -> None:
    attention = SpatialGate(2, kernel_size=1).eval()
    feature_map = torch.tensor([1.0, 5.0]).reshape(1, 2, 1, 1)
    scale = (1 + attention.spatial.norm.eps) ** -0.5
    for weight, pooled in (([1.0, 0.0], 3.0), ([0.0, 1.0], 5.0)):
        attention.spatial.conv.weight.data = torch.tensor(weight).reshape(1, 2, 1, 1)
        torch.testing.assert_close(attention(feature_map), feature_map * torch.sigmoid(torch.tensor(pooled * scale)))


def test_one_position_of_one_image_trains_on_the_running_statistics() -> None:
    attention = SpatialGate(3).train()
    before = {name: value.clone() for name, value in attention.state_dict().items()}
    trained = attention(torch.ones(1, 3, 1, 1))
    assert all(torch.equal(value, before[name]) for name, value in attention.state_dict().items())
    assert torch.equal(trained, attention.eval()(torch.ones(1, 3, 1, 1)))


def test_the_gate_depends_on_the_position_only() -> None:
    torch.manual_seed(0)
    feature_map = torch.rand(2, 8, 6, 6) + 0.5
    gate = SpatialGate(8)(feature_map) / feature_map
    torch.testing.assert_close(gate, gate[:, :1].expand_as(gate))
    assert gate.std() > 1e-3
