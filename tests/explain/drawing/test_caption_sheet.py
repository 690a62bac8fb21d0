"""The sheet of a caption."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.explain.drawing.caption_sheet import draw_caption_sheet
from zoo.explain.placement import Placement

PIXELS = np.full((40, 60, 3), 90, dtype=np.uint8)
PLACEMENT = Placement((0, 0, 60, 40), (40, 60))


def test_a_word_is_bright_where_it_looks_and_a_row_is_added_where_words_are_many():
    maps = torch.zeros(2, 4, 6)
    maps[0, 0, 0], maps[1, 3, 5] = 1, 1
    sheet = np.asarray(Image.open(io.BytesIO(draw_caption_sheet(PIXELS, PLACEMENT, ["one", "two"], maps, title="t"))))
    difference = np.abs(sheet.astype(int) - sheet[..., :1]).max(2)  # colour is where it looks
    third = sheet.shape[1] // 5
    for column, (vertical, horizontal) in ((1, ("top", "left")), (2, ("bottom", "right"))):
        rows, columns = np.nonzero(difference[:, column * third : (column + 1) * third] > 100)
        inside = np.nonzero(difference[:, column * third : (column + 1) * third] > 20)
        middle = (inside[0].min() + inside[0].max()) / 2, (inside[1].min() + inside[1].max()) / 2
        assert (rows.mean() < middle[0]) == (vertical == "top")
        assert (columns.mean() < middle[1]) == (horizontal == "left")
    longer = draw_caption_sheet(PIXELS, PLACEMENT, list("abcdef"), torch.ones(6, 4, 6) / 24, title="t")
    assert Image.open(io.BytesIO(longer)).height > 1.8 * sheet.shape[0]


def test_a_map_for_each_word_is_needed():
    with pytest.raises(ValueError, match="1 maps are given for 2 words"):
        draw_caption_sheet(PIXELS, PLACEMENT, ["one", "two"], torch.ones(1, 4, 6), title="t")
