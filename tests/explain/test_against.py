"""Two networks side by side: who wins, where they differ, also when they see different parts of the image."""

import math
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from zoo.explain import explain_image
from zoo.explain.against import Pair, find_label, summarise
from zoo.explain.writing import write_pairs
from zoo.preprocessing import Preprocessing

SQUARE = Preprocessing(16, 16, (0.25,) * 3, (0.5,) * 3)
CROPPED = Preprocessing(16, 16, (0.25,) * 3, (0.5,) * 3, resize=24)
NAMES = ("dark", "bright")


class ReadsHalf(nn.Module):
    """Class "bright" is the brightness of one half of the image, less the threshold of 0."""

    def __init__(self, *, left: bool, sign: float = 1.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 1, bias=False)
        nn.init.constant_(self.conv.weight, sign)
        half = torch.zeros(16, 16)
        half[:, slice(8) if left else slice(8, None)] = 1
        self.register_buffer("part", half)

    def forward(self, images):
        brightness = (self.conv(images) * self.part).mean((1, 2, 3))
        return torch.stack([torch.zeros_like(brightness), brightness], 1)


def explain(model, preprocessing=SQUARE, class_name="bright", network="a", names=NAMES, size=(32, 32), title="x.png"):
    pixels = np.random.default_rng(0).integers(180, 256, (*size, 3)).astype(np.uint8)
    return explain_image(
        model.eval(),
        Image.fromarray(pixels),
        preprocessing=preprocessing,
        class_names=names,
        class_index=names.index(class_name),
        methods=["occlusion", "integrated_gradients"],
        trust=False,
        network=network,
        title=title,
    )


@pytest.fixture
def pair():
    return Pair(explain(ReadsHalf(left=True)), explain(ReadsHalf(left=False), network="b"), "bright")


def test_the_difference_is_red_where_the_first_looks_and_blue_where_the_second_does(pair):
    difference = pair.difference("integrated_gradients")
    assert difference.shape == (32, 32)
    assert difference[:, :15].min() > 0
    assert difference[:, 17:].max() < 0
    assert difference.sum() == pytest.approx(0, abs=1e-5)
    assert pair.agreement("occlusion") < -0.5


def test_a_network_against_itself_differs_nowhere():
    one = explain(ReadsHalf(left=True))
    same = Pair(one, one)
    assert np.abs(same.difference("occlusion")).max() == 0
    assert same.agreement("occlusion") == pytest.approx(1)
    assert same.winner is None


def test_networks_that_see_different_parts_are_compared_where_both_see(pair):
    crop = explain(ReadsHalf(left=True), CROPPED, size=(32, 48))
    whole = explain(ReadsHalf(left=True), size=(32, 48))
    difference = Pair(crop, whole).difference("occlusion")
    seen = ~np.isnan(difference)
    left, top, right, bottom = (round(edge) for edge in crop.placement.box)
    assert seen[top + 1 : bottom - 1, left + 1 : right - 1].all()
    assert not seen[:, : left - 1].any()
    assert difference[seen].sum() == pytest.approx(0, abs=1e-5)
    assert -1 <= Pair(crop, whole).agreement("occlusion") <= 1


@pytest.mark.parametrize(
    ("signs", "label", "winner"),
    [
        ((1, 1), "bright", "neither"),
        ((1, -1), "bright", "first"),
        ((1, -1), "dark", "second"),
        ((-1, -1), "bright", "neither"),
        ((1, -1), None, None),
    ],
)
def test_who_is_right_alone_wins(signs, label, winner):
    first, second = (explain(ReadsHalf(left=True, sign=sign)) for sign in signs)
    assert Pair(first, second, label).winner == winner


def test_both_must_be_explained_for_the_same_class_of_whatever_number():
    first = explain(ReadsHalf(left=True))
    swapped = explain(ReadsHalf(left=True), names=("bright", "dark"))
    assert Pair(first, swapped).certainties[0] == pytest.approx(1 - Pair(first, swapped).certainties[1], abs=1e-6)
    with pytest.raises(ValueError, match="a is explained for bright, but b for dark"):
        Pair(first, explain(ReadsHalf(left=True), class_name="dark", network="b"))


def test_the_sentences_count_and_name(pair):
    wins = Pair(
        explain(ReadsHalf(left=True), title="y.png"), explain(ReadsHalf(left=True, sign=-1), network="b"), "bright"
    )
    text = " ".join(summarise([pair, wins]))
    assert "a and b answer differently on 1 of 2 images: y.png." in text
    assert "Of 2 images whose class is known, a is right on 2 and b on 1." in text
    assert "a alone is right on 1 image: y.png." in text
    assert "b alone" not in text
    assert "least on y.png" in text
    assert not re.search("[\u2013\u2014]", text)
    assert "Which one wins is not known" in " ".join(summarise([Pair(pair.first, pair.second)]))
    with pytest.raises(ValueError, match="there is no image to compare two networks on"):
        summarise([])


def test_labels_come_from_folders_named_after_a_class_of_both():
    assert find_label("French_Horn", ["french horn"], ["tench", "french horn"]) == "french horn"
    assert find_label("tench", ["tench"], ["cat"]) is None
    assert find_label("images", ["tench"], ["tench"]) is None


def test_an_even_map_has_no_agreement():
    even = explain(ReadsHalf(left=True, sign=0.0), network="b")
    assert math.isnan(Pair(explain(ReadsHalf(left=True)), even).agreement("occlusion"))


def test_page_sheets_and_arrays_are_written(tmp_path, pair):
    page, sheet, arrays = write_pairs([pair], tmp_path / "new")
    text = page.read_text(encoding="utf-8")
    assert page.name == "against.html"
    assert "a against b" in text
    assert len(re.findall(r'src="data:image/png;base64,', text)) == 2
    assert "http" not in re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    with Image.open(sheet) as image:
        assert image.size[0] == 1400
    with np.load(arrays, allow_pickle=False) as stored:
        assert {"first.map.occlusion", "second.map.occlusion", "difference.occlusion"} <= set(stored)
