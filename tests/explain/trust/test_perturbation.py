import pytest
import torch

from zoo.explain.trust.perturbation import Curves, moved_maps, perturb, random_maps


def test_areas_are_those_under_the_curves():
    curves = Curves((0.0, 0.5, 1.0), deletion=(1.0, 0.0, 0.0), insertion=(0.0, 1.0, 1.0))
    assert curves.deletion_area == pytest.approx(0.25)
    assert curves.insertion_area == pytest.approx(0.75)
    assert curves.lead == pytest.approx(0.5)


def test_pixels_go_and_come_in_the_order_of_the_map(looks_at_region, bright_image, region):
    right = perturb(looks_at_region, bright_image, 1, region.float(), seed=0, num_steps=4)
    assert right.fractions == (0, 0.25, 0.5, 0.75, 1)
    whole, empty = right.deletion[0], 0.5
    # The quadrant is a quarter of the pixels: without it the network sees nothing, with it alone everything.
    assert right.deletion == pytest.approx([whole, empty, empty, empty, empty])
    assert right.insertion == pytest.approx([empty, whole, whole, whole, whole])
    wrong = perturb(looks_at_region, bright_image, 1, -region.float(), seed=0, num_steps=4)
    assert wrong.deletion == pytest.approx([whole, whole, whole, whole, empty])
    assert wrong.lead < 0 < right.lead


def test_equal_values_follow_each_other_by_lot_of_the_seed(looks_at_region, bright_image):
    even = torch.zeros(16, 16)
    first, again, other = (perturb(looks_at_region, bright_image, 1, even, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first.deletion[6] not in (first.deletion[0], first.deletion[-1])


def test_a_moved_map_has_the_same_values_elsewhere():
    values = torch.zeros(16, 16)
    values[2:6, 3:7] = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    moved = moved_maps(values, count=20, seed=0)
    assert len(moved) == 20
    for each in moved:
        assert torch.equal(each.flatten().sort().values, values.flatten().sort().values)
        assert float((each * values).sum()) == 0
    assert len({tuple(each.flatten().tolist()) for each in moved}) > 15
    assert moved_maps(torch.ones(1, 2), count=1, seed=0)[0].shape == (1, 2)


def test_random_maps_are_repeatable_and_differ():
    first, second = random_maps((4, 6), count=2, seed=3)
    assert torch.equal(first, random_maps((4, 6), count=1, seed=3)[0])
    assert not torch.equal(first, second)


def test_maps_of_another_size_are_refused(looks_at_region, bright_image):
    with pytest.raises(ValueError, match=r"the map has \(4, 4\) pixels, the image \(16, 16\)"):
        perturb(looks_at_region, bright_image, 1, torch.zeros(4, 4), seed=0)
    with pytest.raises(ValueError, match=r"num_steps \(0\) must be at least 1"):
        perturb(looks_at_region, bright_image, 1, torch.zeros(16, 16), seed=0, num_steps=0)
