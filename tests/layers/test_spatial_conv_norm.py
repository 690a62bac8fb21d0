import torch

from zoo.layers.spatial_conv_norm import SpatialConvNorm


def test_both_convolutions_give_the_same_logits() -> None:
    torch.manual_seed(0)
    layer = SpatialConvNorm(2).eval()
    maps = torch.randn(2, 2, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = layer(maps.bfloat16())
    torch.testing.assert_close(narrow.float(), layer(maps), rtol=0.02, atol=0.02)


def test_a_fresh_layer_can_start_at_zero_and_still_learn() -> None:
    torch.manual_seed(0)
    layer = SpatialConvNorm(2, zero_output=True)
    logits = layer(torch.randn(2, 2, 6, 6))
    assert logits.eq(0).all()
    (logits * torch.randn(logits.shape)).sum().backward()
    assert layer.norm.weight.grad.abs() > 0
