"""The unit of the backbones: names, padding, initialisation."""

import pytest
import torch
from torch import nn

from zoo.layers.conv_norm_act import ConvNormAct, convolution


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_stride_one_keeps_the_size(kernel_size):
    assert ConvNormAct(2, 4, kernel_size)(torch.zeros(2, 2, 7, 5)).shape == (2, 4, 7, 5)


def test_children_are_convolution_norm_and_activation():
    layers = ConvNormAct(2, 4, activation=nn.ReLU6, eps=0.001, momentum=0.01)
    assert [type(layers.get_submodule(name)) for name in "012"] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU6]
    assert layers[0].bias is None
    assert (layers[1].eps, layers[1].momentum) == (0.001, 0.01)
    assert len(ConvNormAct(2, 4, activation=None)) == 2


@pytest.mark.parametrize(("groups", "fan_out"), [(1, 9 * 256), (256, 9)])
def test_weights_are_drawn_over_the_fan_out_of_one_group(groups, fan_out):
    torch.manual_seed(0)
    weight = convolution(256, 256, 3, groups=groups, bias=True).weight
    assert weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
    assert convolution(4, 4, 1, bias=True).bias.count_nonzero() == 0
