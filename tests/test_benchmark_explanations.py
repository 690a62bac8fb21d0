"""Shares inside boxes are counted in the pixels that the network sees, and the document's table is what rows say."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import explanations
from benchmarks.explanations import CENTRE, CHANCE, KNOWN, OTHER, box_region, centre_prior, covered
from zoo.explain.placement import Placement
from zoo.preprocessing import Preprocessing

ROOT = Path(__file__).parent.parent


def test_a_box_covers_the_pixels_of_the_input_that_show_it():
    preprocessing = Preprocessing(32, 32, (0.5,) * 3, (0.5,) * 3, resize=40)
    pixels = np.zeros((120, 200, 3), np.uint8)
    pixels[40:80, 90:130] = 255
    image = Image.fromarray(pixels)
    region = box_region([(90, 40, 130, 80)], Placement.of(image, preprocessing), (32, 32))
    shown = preprocessing.to_pixels(image)[0].double() / 255
    assert float((region - shown).abs().mean()) < 0.01
    assert float(region.sum()) == pytest.approx(40 * 40 / 9, rel=0.02)  # sides are scaled to whole pixels


def test_boxes_beyond_the_crop_and_overlapping_boxes_count_once():
    placement = Placement((0, 0, 8, 8), (8, 16))
    assert box_region([(9, 0, 16, 8)], placement, (8, 8)).sum() == 0
    assert box_region([(0, 0, 4, 8), (0, 0, 4, 8), (3, 0, 30, 8)], placement, (8, 8)).mean() == 1
    assert covered(3, -5, 1.5).tolist() == [1, 0.5, 0]
    assert covered(3, 2, 1).tolist() == [0, 0, 0]


def test_the_centre_prior_is_in_the_middle_and_sums_to_one():
    prior = centre_prior(6, 9)
    assert prior.shape == (6, 9)
    assert float(prior.sum()) == pytest.approx(1)
    assert torch.allclose(prior, prior.flip(0, 1))
    assert int(prior.argmax()) in (2 * 9 + 4, 3 * 9 + 4)


@pytest.fixture
def photographs(tmp_path):
    generator = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    entries = []
    for number, wnid in enumerate(["n1", "n2", "n2", "n2", "n2"]):
        Image.fromarray(generator.integers(0, 256, (40, 60, 3)).astype(np.uint8)).save(
            tmp_path / f"images/{number}.png"
        )
        box = [0, 0, 60, 40] if number == 4 else [20, 10, 40, 30]
        entries.append({"file": f"{number}.png", "wnid": wnid, "boxes": [box]})
    classes = [{"wnid": "n1", "name": "Digit 3, three"}, {"wnid": "n2", "name": "cat"}]
    (tmp_path / "annotations.json").write_text(json.dumps({"classes": classes, "images": entries}))
    return tmp_path


def test_rows_and_table_come_of_photographs(tmp_path, photographs, save_tiny_weights):
    names = [f"digit_{number}" for number in range(10)]
    save_tiny_weights(tmp_path / "w" / "tiny.yaml", data={"name": "x", "split": "test", "class_names": names})
    document = tmp_path / "document.md"
    document.write_text("before\n<!-- boxes -->\n<!-- end boxes -->\nafter\n")
    words = ["--weights", str(tmp_path / "w" / "tiny.yaml"), "--data", str(photographs), "--num_images", "4"]
    explanations.main([*words, "--output", str(tmp_path / "rows.csv"), "--document", str(document)])
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["group"]: int(row["num_images"]) for row in rows} == {KNOWN: 1, OTHER: 3}  # one box is the whole image
    of_others = {row["what"]: row for row in rows if row["group"] == OTHER}
    assert set(of_others) >= {CHANCE, CENTRE, "Grad-CAM", "Occlusion, weights scrambled", "Integrated gradients"}
    assert float(of_others[CHANCE]["share"]) == pytest.approx(400 / (60 * 40), abs=0.001)
    assert float(of_others[CENTRE]["share"]) > float(of_others[CHANCE]["share"])
    assert float(of_others[CENTRE]["over_centre"]) == 0
    text = document.read_text()
    assert f"3 photographs: {OTHER};" in text
    assert text.startswith("before\n<!-- boxes -->\n")
    assert f"| {CHANCE} | {100 * float(of_others[CHANCE]['share']):.1f} % |" in text


def test_the_documents_table_is_what_the_rows_say():
    text = (ROOT / "docs" / "explaining.md").read_text(encoding="utf-8")
    section = re.search(r"<!-- boxes -->\n(.*?)\n<!-- end boxes -->", text, re.DOTALL)
    assert section is not None
    assert section[1] == explanations.document_table(explanations.newest_rows())
