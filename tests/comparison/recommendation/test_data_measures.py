"""Measures without boxes: they find a thing where it is, and follow the knobs of cluttered_digits."""

import pytest
import torch

from zoo.comparison.recommendation.data_measures import (
    SIDE,
    DataMeasures,
    ImageMeasures,
    measure_images,
    moments,
)
from zoo.data import create_data


def square_at(row, column, *, side=64, size=12, channels=3, seed=0):
    """A dark image with a bright striped square whose corner is at (row, column)."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(40, 60, (channels, side, side), generator=generator, dtype=torch.uint8)
    stripes = torch.tensor([120, 250], dtype=torch.uint8).repeat_interleave(2).repeat(size)[:size]
    image[:, row : row + size, column : column + size] = stripes
    return image


@pytest.mark.parametrize(("row", "column"), [(8, 8), (8, 44), (26, 26), (44, 20)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_single_object_is_found_where_it_is(row, column, channels):
    found = measure_images(square_at(row, column, channels=channels).unsqueeze(0))
    middle = [(row + 6) / 64 - 0.5, (column + 6) / 64 - 0.5]
    assert found.centre[0].tolist() == pytest.approx(middle, abs=0.03)
    assert found.region[0, row + 6, column + 6]
    assert found.region[0].float().mean() < 0.15


def test_the_figures_do_not_depend_on_the_size_of_the_images():
    image = square_at(8, 40).unsqueeze(0)
    large = torch.nn.functional.interpolate(image.float(), scale_factor=3, mode="nearest").to(torch.uint8)
    small, enlarged = DataMeasures.of(double(measure_images(image))), DataMeasures.of(double(measure_images(large)))
    assert enlarged.mean_size == pytest.approx(small.mean_size, rel=0.05)
    assert enlarged.clutter == pytest.approx(small.clutter, rel=0.2)


def double(measures):
    return ImageMeasures.join([measures, measures])


def test_larger_objects_have_a_larger_size():
    sizes = [float(measure_images(square_at(20, 20, size=size).unsqueeze(0)).size) for size in (12, 20, 30)]
    assert sizes == sorted(sizes)
    assert sizes[2] > 1.3 * sizes[0]


def test_an_image_without_any_contrast_is_centred_and_not_cluttered():
    found = measure_images(torch.full((2, 3, 32, 32), 200, dtype=torch.uint8))
    assert found.centre == pytest.approx(torch.zeros(2, 2), abs=1e-6)
    assert found.clutter.tolist() == pytest.approx([0, 0], abs=1e-6)
    assert torch.isfinite(found.size).all()


def test_centre_and_extent_are_those_of_the_mass():
    maps = torch.zeros(1, 4, 4)
    maps[0, 0, 0] = maps[0, 0, 3] = 1
    centre, size = moments(maps)
    assert centre.tolist() == [[-0.375, 0.0]]
    assert size.item() == pytest.approx(0.375)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(1, 4, 8, 8, dtype=torch.uint8)],
)
def test_other_than_batches_of_bytes_are_refused(images):
    with pytest.raises(ValueError, match="must be uint8"):
        measure_images(images)


def summary(**knobs):
    data = create_data("cluttered_digits", num_images=600, **knobs)
    data.setup()
    return DataMeasures.of(ImageMeasures.join([measure_images(batch.images) for batch in data.create_loader("val")]))


@pytest.mark.parametrize("clutter", [0, 8])
def test_position_spread_rises_with_the_knob(clutter):
    spreads = [summary(position_jitter=jitter, clutter=clutter).position_spread for jitter in (0, 0.5, 1)]
    assert spreads[0] < spreads[1] < spreads[2]


@pytest.mark.parametrize("jitter", [0, 1])
def test_clutter_rises_with_the_knob(jitter):
    values = [summary(position_jitter=jitter, clutter=clutter).clutter for clutter in (0, 2, 8)]
    assert values[0] < values[1] < values[2]


def test_the_region_has_the_size_that_is_measured_at():
    assert measure_images(square_at(8, 8, side=40, size=9).unsqueeze(0)).region.shape == (1, SIDE, SIDE)
