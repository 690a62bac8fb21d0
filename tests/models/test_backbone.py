"""What all backbones share: strides, stages, rounding of widths."""

import torch

from zoo.models.backbone import fit_strides, linear, make_divisible, number_stages


def test_cifar_stem_drops_the_first_two_halvings_only():
    published = [2, 1, 2, 1, 2, 1, 2, 2]
    assert fit_strides(published, "cifar") == [1, 1, 1, 1, 2, 1, 2, 2]
    assert fit_strides(published, "imagenet") == published


def test_stages_count_the_halvings_after_the_first_block():
    assert number_stages([1, 2, 1, 2]) == [1, 2, 2, 3]
    assert number_stages([2, 2, 1, 2]) == [1, 2, 2, 3]


def test_widths_never_lose_more_than_a_tenth():
    assert [make_divisible(width) for width in (1, 12, 11.9, 18, 19, 20)] == [8, 16, 16, 24, 24, 24]
    assert all(make_divisible(width) >= 0.9 * width for width in range(1, 300))


def test_first_logits_are_near_zero():
    torch.manual_seed(0)
    layer = linear(1000, 100)
    assert 0.0095 < layer.weight.std().item() < 0.0105
    assert layer.bias.count_nonzero() == 0
