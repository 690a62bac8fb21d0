"""Planted tasks hold what they promise, measures are held against a truth, and answers are written down."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import data_measures, planted_tasks, recommendations
from zoo.data import create_data


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    planted_tasks.main([str(folder), "--scale", "0.1"])
    return folder


def read(folder, split):
    paths = sorted((folder / split).rglob("*.png"))
    labels = [planted_tasks.CLASSES.index(path.parent.name) for path in paths]
    return np.array([np.asarray(Image.open(path), dtype=np.float64) / 255 for path in paths]), np.array(labels)


@pytest.mark.parametrize("task", ["colours", "tints"])
def test_planted_folders_are_data_sets_of_four_equal_classes(planted, task):
    data = create_data("image_folder", root=str(planted / task), image_size=32, num_workers=0, batch_size=8)
    data.check()
    assert set(data.class_names) == set(planted_tasks.CLASSES)
    assert (data.num_train, data.num_val, data.num_test) == (40, 60, 60)
    assert data.labels("train").bincount().tolist() == [10] * 4


def accuracy_of_mean_colour(images, labels):
    """Of a rule that knows the directions and looks at the mean over the whole image."""
    means = images.mean(axis=(1, 2))
    scores = (means - means.mean(axis=1, keepdims=True)) @ planted_tasks.DIRECTIONS.T
    return np.mean(scores.argmax(axis=1) == labels)


def test_in_colours_the_mean_over_all_places_says_everything(planted):
    assert accuracy_of_mean_colour(*read(planted / "colours", "val")) == 1.0


def test_in_tints_it_says_little_and_the_mean_over_the_rough_patch_nearly_everything(planted):
    images, labels = read(planted / "tints", "val")
    assert accuracy_of_mean_colour(images, labels) < 0.6
    brightness = images.mean(axis=3)
    steps = np.abs(np.diff(brightness, axis=1))[:, :, :-1] + np.abs(np.diff(brightness, axis=2))[:, :-1]
    side = planted_tasks.PATCH
    windows = np.lib.stride_tricks.sliding_window_view(steps, (side - 1, side - 1), axis=(1, 2)).sum(axis=(3, 4))
    best = windows.reshape(len(images), -1).argmax(axis=1)
    patches = []
    for image, position in zip(images, best, strict=True):
        row, column = divmod(int(position), windows.shape[2])
        patches.append(image[row : row + side, column : column + side])
    assert accuracy_of_mean_colour(np.array(patches), labels) > 0.8


def test_knob_rows_say_whether_the_measure_follows():
    settings = [{"position_jitter": jitter, "clutter": 0} for jitter in (0.0, 1.0)]
    rows = list(data_measures.knob_rows("position spread", "position_jitter", settings, 300))
    assert rows[0].value < rows[1].value
    assert (rows[2].value, rows[2].unit, rows[2].setting) == (1.0, "yes=1", "clutter 0")
    (_, _, falling) = data_measures.knob_rows("position spread", "position_jitter", settings[::-1], 300)
    assert falling.value == 0.0


def test_boxes_are_read_in_the_pixels_of_the_image_and_correlations_are_with_them(tmp_path):
    """One bright square per image, its box beside it: all correlations of place are high."""
    (tmp_path / "images").mkdir()
    entries = []
    generator = torch.Generator().manual_seed(0)
    for number in range(40):
        left, top = torch.randint(5, 110, (2,), generator=generator).tolist()
        pixels = torch.randint(60, 80, (160, 213, 3), generator=generator, dtype=torch.uint8).numpy()
        pixels[top : top + 40, left : left + 60 : 4] = 250
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
        boxes = [[left, top, left + 60, top + 40]]
        entries.append({"file": f"{number}.png", "size": [213, 160], "boxes": boxes})
    (tmp_path / "annotations.json").write_text(json.dumps({"images": entries}))
    _, boxes = data_measures.read_boxes(tmp_path)
    assert boxes.float().mean(dim=(1, 2)) == pytest.approx(torch.full((40,), 60 * 40 / (213 * 160)), abs=0.02)
    rows = {(row.setting, row.what): row.value for row in data_measures.box_rows(tmp_path)}
    assert rows["image by image", "row of the centre, with that of the boxes"] > 0.9
    assert rows["image by image", "column of the centre, with that of the boxes"] > 0.9
    assert rows["over 20 groups", "position spread, with that of the boxes"] > 0.5


def test_answers_become_rows(tmp_path):
    difference = {"net": "se", "base": "none", "mean": 0.0123456, "low": -0.01, "high": 0.03, "verdict": "open",
                  "num_seeds": 3, "num_images": 200}  # fmt: skip
    answer = {
        "recommendation": "none", "confidence": "not shown", "differences": [difference], "minutes": 4.5,
        "request": {"data": "image_folder(root=mine)", "model": "resnet20", "budget_minutes": 5, "margin_points": 0.5,
                    "recipe": {"data": {"image_size": 64}}},
        "runs": {"epochs": 7}, "price": {"se": {"latency": {"median": 1.25}}},
        "hardware": {"processor": "p", "num_cores": 2}, "versions": {"python": "3", "torch": "2"}, "commit": None,
    }  # fmt: skip
    (tmp_path / "recommendation.json").write_text(json.dumps(answer))
    recommendations.main([str(tmp_path / "recommendation.json"), "--output", str(tmp_path / "rows.csv")])
    with (tmp_path / "rows.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["answer"], row["verdict"], row["latency_ratio"]) == ("none (not shown)", "open", "1.25")
    assert row["data"] == "image_folder(root=mine, image_size=64)"
    assert row["mean"] == "0.01235"
