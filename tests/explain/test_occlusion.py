import pytest
import torch
from torch import nn

from zoo.explain.occlusion import occlusion


class Brightness(nn.Module):
    def forward(self, images):
        brightness = images.sum((1, 2, 3))
        return torch.stack([brightness, -brightness], 1)


def test_the_fall_of_a_sum_is_what_was_covered():
    images = torch.rand(1, 3, 6, 9, generator=torch.Generator().manual_seed(0))
    exact = images[0].sum(0)
    assert torch.allclose(occlusion(Brightness(), images, 0, side=1).values, exact, atol=1e-5)
    assert torch.allclose(occlusion(Brightness(), images, 1, side=1).values, -exact, atol=1e-5)
    blocks = occlusion(Brightness(), images, 0, side=3, stride=3).values
    assert torch.allclose(blocks[:3, 3:6], exact[:3, 3:6].sum().expand(3, 3), atol=1e-4)


@pytest.mark.parametrize("size", [(16, 16), (17, 23), (5, 40)])
def test_every_pixel_is_covered_up_to_the_border(size):
    heatmap = occlusion(Brightness(), torch.ones(1, 3, *size), 0)
    side = min(size) // 4
    assert heatmap.values.unique().tolist() == pytest.approx([3.0 * side**2], rel=1e-4)


def test_sizes_out_of_range_are_named():
    images = torch.ones(1, 3, 6, 9)
    with pytest.raises(ValueError, match=r"side \(7\) must be from 1 to the image's shorter side, 6"):
        occlusion(Brightness(), images, 0, side=7)
    with pytest.raises(ValueError, match=r"stride \(3\) must be from 1 to side \(2\)"):
        occlusion(Brightness(), images, 0, side=2, stride=3)
