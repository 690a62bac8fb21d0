import sys

import pytest
import torch
from torch import nn

from zoo.explain.integrated_gradients import attribute, integrated_gradients

IMAGES = torch.randn(1, 3, 6, 4, generator=torch.Generator().manual_seed(0))


def linear_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 2))


def test_of_a_linear_network_they_are_weight_times_pixel():
    model = linear_net()
    expected = (model[1].weight[1].view(3, 6, 4) * IMAGES[0]).sum(0).detach()
    heatmap, completeness = attribute(model, IMAGES, 1, num_steps=1)
    assert torch.allclose(heatmap.values, expected, atol=1e-6)
    assert completeness.gap < 1e-5
    assert completeness.total == pytest.approx(float(expected.sum()), abs=1e-5)


def test_of_a_cube_they_are_the_integral_and_too_few_steps_leave_a_gap():
    class Cube(nn.Module):
        def forward(self, images):
            return (images**7).sum((2, 3))[:, :2]

    heatmap, completeness = attribute(Cube(), IMAGES.abs(), 0, num_steps=8)
    assert torch.allclose(heatmap.values, IMAGES[0, 0].abs() ** 7, rtol=1e-4)
    assert completeness.gap < 1e-4
    assert attribute(Cube(), IMAGES.abs(), 0, num_steps=1)[1].gap > 0.5


def test_without_captum_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(ValueError, match=r"need Captum: pip install 'vision-attention-zoo\[explain\]'"):
        integrated_gradients(linear_net(), IMAGES, 0)
