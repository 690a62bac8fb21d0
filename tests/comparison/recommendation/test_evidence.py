"""Signs: they hold where data, gradient or errors speak, and nowhere else."""

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.comparison.recommendation.data_measures import SIDE, DataMeasures, ImageMeasures
from zoo.comparison.recommendation.evidence import (
    POSITION_SPREAD_SIGN,
    error_rates_of,
    error_signs,
    find_signs,
    measure_held_out,
    read_held_out,
    typical_short_side,
)
from zoo.comparison.recommendation.saliency import SaliencyShares
from zoo.data import create_data


def measures(off_centre, clutter):
    count = len(off_centre)
    centre = torch.stack([torch.as_tensor(off_centre), torch.zeros(count)], dim=1)
    region = torch.ones(count, SIDE, SIDE, dtype=torch.bool)
    return ImageMeasures(centre, torch.ones(count), torch.as_tensor(clutter), region.float(), region)


def shares(mass):
    return SaliencyShares(torch.tensor([mass]), torch.tensor([0.5]), torch.zeros(1, SIDE, SIDE))


def holding(summary, found, mass, errors):
    return {sign.name for sign in find_signs(summary, found, shares(mass), errors) if sign.holds}


def test_calm_centred_images_of_a_net_that_looks_at_the_object_give_no_sign():
    found = measures(torch.rand(100) * 0.1, torch.rand(100) * 0.01)
    calm = DataMeasures(0.01, 0.2, 0.1, 0.01, 100)
    assert holding(calm, found, 0.3, np.zeros(100)) == set()


@pytest.mark.parametrize(
    ("summary", "mass", "sign"),
    [
        (DataMeasures(POSITION_SPREAD_SIGN, 0.2, 0.1, 0.01, 100), 0.3, "position spread"),
        (DataMeasures(0.01, 0.2, 0.1, 0.2, 100), 0.3, "clutter"),
        (DataMeasures(0.01, 0.2, 0.1, 0.01, 100), 0.6, "saliency outside"),
    ],
)
def test_each_measure_over_its_threshold_is_a_sign(summary, mass, sign):
    found = measures(torch.rand(100) * 0.1, torch.rand(100) * 0.01)
    assert holding(summary, found, mass, np.zeros(100)) == {sign}


def test_errors_that_rise_with_a_measure_are_a_sign_and_others_are_not():
    generator = torch.Generator().manual_seed(0)
    far, busy = torch.rand(300, generator=generator), torch.rand(300, generator=generator)
    wrong = (torch.rand(300, generator=generator) < far).double().numpy()
    signs = {sign.name: sign for sign in error_signs(measures(far, busy), wrong)}
    assert signs["errors off centre"].holds
    assert "errors rise" in signs["errors off centre"].sentence
    assert not signs["errors in clutter"].holds
    assert not error_signs(measures(far, busy), 1 - wrong)[0].holds  # errors near the middle speak for nothing


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_errors_that_are_all_equal_are_no_sign(rate):
    assert not any(sign.holds for sign in error_signs(measures(torch.rand(9), torch.rand(9)), np.full(9, rate)))


@pytest.mark.parametrize("limit", [1000, 40])
def test_held_out_images_are_an_even_sample_in_the_order_of_the_split(limit):
    data = create_data("cluttered_digits", num_images=600)
    data.setup()
    images = read_held_out(data, limit)
    assert len(images.labels) == min(limit, 100)
    assert images.indices[0] == 0
    assert images.indices[-1] == 99
    assert images.indices.diff().min() >= 1
    assert torch.equal(images.labels, data.labels("val")[images.indices])
    assert len(measure_held_out(images).size) == len(images.labels)


def test_error_rates_are_those_of_the_chosen_images():
    answers = [np.array([True, False, True]), np.array([True, False, False])]
    assert error_rates_of(answers, torch.tensor([1, 2])).tolist() == [1.0, 0.5]


def test_the_typical_side_is_the_median_short_side(tmp_path):
    for number, size in enumerate([(10, 50), (30, 20), (40, 90)]):
        (tmp_path / str(number)).mkdir()
        Image.new("RGB", size).save(tmp_path / str(number) / "a.png")
    (tmp_path / "0" / "broken.png").write_bytes(b"no image")
    assert typical_short_side(tmp_path) == 20
    with pytest.raises(ValueError, match="holds no image"):
        typical_short_side(tmp_path / "absent")
