"""The gradient lies where the net looks, and its share outside a region is counted right."""

import pytest
import torch
from torch import nn

from zoo.comparison.recommendation.data_measures import SIDE
from zoo.comparison.recommendation.saliency import gradient_mass, share_outside


class LooksAt(nn.Module):
    """Class 1's logit is the sum of one quarter of the image; class 0 looks at the opposite one."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images):
        half = images.shape[2] // 2
        images = self.norm(images)
        return torch.stack([images[:, :, half:, half:].sum((1, 2, 3)), images[:, :, :half, :half].sum((1, 2, 3))], 1)


def quarter(last):
    region = torch.zeros(1, SIDE, SIDE, dtype=torch.bool)
    half = SIDE // 2
    region[:, slice(half, None) if last else slice(half), slice(half, None) if last else slice(half)] = True
    return region


@pytest.mark.parametrize("side", [32, 64, 100])
def test_the_mass_lies_where_the_class_of_the_label_looks(side):
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    maps = gradient_mass(LooksAt(), images, torch.tensor([1, 0]))
    assert maps.sum(dim=(1, 2)).tolist() == pytest.approx([1, 1], abs=1e-4)
    assert maps[:1][quarter(last=False)].sum() > 0.95
    assert maps[1:][quarter(last=True)].sum() > 0.95


def test_shares_outside_and_their_ratio():
    maps = torch.zeros(1, SIDE, SIDE)
    maps[0, 0, 0], maps[0, -1, -1] = 0.25, 0.75
    shares = share_outside(maps, quarter(last=False))
    assert shares.mass_outside.tolist() == [0.75]
    assert shares.area_outside.tolist() == [0.75]
    assert shares.ratio == pytest.approx(1.0)
    assert share_outside(maps, quarter(last=True)).ratio == pytest.approx(1 / 3)


def test_a_net_that_looks_nowhere_is_spread_evenly():
    class Constant(nn.Module):
        def forward(self, images):
            return images.sum((1, 2, 3), keepdim=True).flatten(1).expand(-1, 2) * 0

    maps = gradient_mass(Constant(), torch.randn(1, 3, 8, 8), torch.tensor([0]))
    assert maps.min() == maps.max() == pytest.approx(1 / SIDE**2)


def test_the_net_is_left_in_its_mode_and_without_gradients():
    net = LooksAt().train()
    before = net.norm.running_mean.clone()
    gradient_mass(net, torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))
    assert net.training
    assert torch.equal(net.norm.running_mean, before)
    assert net.norm.weight.grad is None
