import numpy as np
import pytest
import torch

from zoo.data.splitting import image_keys, split_stratified

LABELS = torch.tensor([0] * 50 + [1] * 10 + [2] * 2)
NAMES = ["many", "some", "two"]


def test_each_class_gives_its_share_but_at_least_one():
    kept, held_out = split_stratified(LABELS, image_keys(62, "test"), 0.1, NAMES)
    assert LABELS[held_out].bincount().tolist() == [5, 1, 1]
    assert LABELS[kept].bincount().tolist() == [45, 9, 1]
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(62))


def test_smallest_keys_are_held_out():
    _, held_out = split_stratified(torch.zeros(6, dtype=torch.int64), np.array([5, 0, 4, 1, 3, 2]), 0.5, ["only"])
    assert held_out.tolist() == [1, 3, 5]


def test_an_image_keeps_its_place_when_others_come_and_go():
    labels = torch.zeros(1000, dtype=torch.int64)
    keys = image_keys(1000, "test")
    _, before = split_stratified(labels, keys, 0.2, ["only"])
    _, after = split_stratified(labels[:-10], keys[:-10], 0.2, ["only"])
    assert len(set(before.tolist()) ^ set(after.tolist())) < 12


def test_keys_do_not_change_between_runs():
    keys = image_keys(1000, "test")
    np.testing.assert_array_equal(keys, image_keys(1000, "test"))
    assert not np.array_equal(keys, image_keys(1000, "other"))


def test_class_with_a_single_image_is_named():
    with pytest.raises(ValueError, match="class 'lonely' has 1 image"):
        split_stratified(torch.tensor([0, 0, 1]), np.arange(3), 0.5, ["pair", "lonely"])


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5])
def test_share_out_of_range_is_refused(fraction):
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        split_stratified(LABELS, image_keys(62, "test"), fraction, NAMES)
