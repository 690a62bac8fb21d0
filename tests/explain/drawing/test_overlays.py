"""Colours lie where the map is large, at the size in which the image is shown."""

import numpy as np
import torch

from zoo.explain.drawing.overlays import SHORTEST_SIDE, enlarge, overlay
from zoo.explain.placement import Placement

GREY = np.full((28, 56, 3), 128, np.uint8)
CROP = Placement((14.0, 0.0, 42.0, 28.0), (28, 56))


def test_the_bright_spot_of_an_overlay_is_where_the_map_is_large():
    values = torch.zeros(7, 7)
    values[5, 1] = 1
    laid = overlay(GREY, CROP, values).astype(int)
    factor = SHORTEST_SIDE // 28
    assert laid.shape == (28 * factor, 56 * factor, 3)
    row, column = (int(5.5 * 4 * factor), int((14 + 1.5 * 4) * factor))
    colour = np.abs(laid - 128).sum(2)
    seen = colour[:, 14 * factor + 8 : 42 * factor - 8]
    peak = np.unravel_index(seen.argmax(), seen.shape)
    assert abs(peak[0] - row) < 2 * factor
    assert abs(peak[1] + 14 * factor + 8 - column) < 2 * factor
    assert colour[row, 30 * factor] == 0


def test_places_that_the_network_does_not_see_are_dark():
    laid = overlay(GREY, CROP, torch.ones(7, 7))
    factor = SHORTEST_SIDE // 28
    assert laid[:, : 13 * factor].max() < 60
    assert laid[:, 15 * factor : 41 * factor].min() >= 60


def test_red_speaks_for_and_blue_against():
    values = torch.tensor([[1.0, -1.0]])
    left, right = (overlay(GREY, CROP, values, is_signed=True)[100, column].astype(int) for column in (150, 300))
    assert left[0] > left[2] + 50
    assert right[2] > right[0] + 50


def test_large_images_stay_as_they_are():
    pixels = np.zeros((300, 400, 3), np.uint8)
    placement = Placement((0, 0, 400, 300), (300, 400))
    same, where = enlarge(pixels, placement)
    assert same.shape == pixels.shape
    assert where == placement
