import pytest
import torch

from zoo.layers.bottleneck_mlp import BottleneckMLP


@pytest.mark.parametrize(("channels", "ratio", "floor", "hidden"), [(32, 4, 1, 8), (8, 16, 1, 1), (64, 16, 8, 8)])
def test_hidden_width_is_the_quotient_or_the_floor(channels: int, ratio: int, floor: int, hidden: int) -> None:
    mlp = BottleneckMLP(channels, reduction_ratio=ratio, min_hidden_channels=floor)
    assert mlp[0].weight.shape == (hidden, channels)
    assert mlp[2].weight.shape == (channels, hidden)


def test_zero_output_returns_zeros_and_still_learns() -> None:
    torch.manual_seed(0)
    mlp = BottleneckMLP(32, zero_output=True)
    output = mlp(torch.randn(4, 32))
    assert output.eq(0).all()
    (output * torch.randn(4, 32)).sum().backward()
    assert mlp[2].weight.grad.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_leaves_its_products_in_the_dtype_of_its_parameters(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = BottleneckMLP(32).to(dtype)
    vectors = torch.randn(4, 32).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        output = mlp(vectors)
    assert output.dtype == dtype
    assert torch.equal(output, mlp(vectors.to(dtype)))


def test_a_device_without_autocast_gives_shapes_all_the_same() -> None:
    assert BottleneckMLP(32).to("meta")(torch.empty(4, 32, device="meta")).shape == (4, 32)
