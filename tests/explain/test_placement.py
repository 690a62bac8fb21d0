"""Overlays land where the pixels are, through resizing and cropping."""

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.explain.placement import Placement, share_inside
from zoo.preprocessing import Preprocessing

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
WAYS = {
    "resized and cropped": Preprocessing(64, 64, MEAN, STD, resize=80),
    "crop that is not square": Preprocessing(48, 64, MEAN, STD, resize=72),
    "squeezed": Preprocessing(40, 56, MEAN, STD),
    "as it is": Preprocessing(120, 200, MEAN, STD),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [(120, 200), (200, 120), (97, 101), (30, 34)])
def test_a_bright_object_is_found_where_it_lies_on_the_original_image(way, size):
    height, width = size
    top, left = height // 3, width // 2
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[top : top + height // 8 + 2, left : left + width // 8 + 2] = 255
    image = Image.fromarray(pixels)
    preprocessing = WAYS[way]
    seen = preprocessing(image)[0]
    laid = Placement.of(image, preprocessing).to_image(seen - seen.min())
    assert laid.shape == size
    weights = np.nan_to_num(laid)
    rows = (weights.sum(1) * np.arange(height)).sum() / weights.sum()
    columns = (weights.sum(0) * np.arange(width)).sum() / weights.sum()
    object_rows, object_columns = np.nonzero(pixels[..., 0])
    tolerance = 0.6 * max(1, height / preprocessing.height, width / preprocessing.width)
    assert rows == pytest.approx(object_rows.mean(), abs=tolerance)
    assert columns == pytest.approx(object_columns.mean(), abs=tolerance)


def test_what_the_crop_cuts_off_is_unknown():
    image = Image.new("RGB", (200, 100))
    laid = Placement.of(image, WAYS["resized and cropped"]).to_image(torch.ones(64, 64))
    seen = ~np.isnan(laid)
    assert seen[:, :60].sum() == 0
    assert seen[50, 62:138].all()
    assert seen[:9].sum() == 0
    assert np.all(laid[seen] == 1)


def test_an_input_that_is_the_image_itself_is_laid_as_it_is():
    values = torch.arange(12.0).view(3, 4)
    assert Placement((0, 0, 4, 3), (3, 4)).to_image(values).tolist() == values.tolist()


def test_the_share_inside_a_region_counts_parts_of_pixels():
    values = torch.tensor([[1.0, 3.0]])
    assert share_inside(values, torch.tensor([[True, False]])) == 0.25
    assert share_inside(values, torch.tensor([[0.0, 0.5]])) == 0.375
