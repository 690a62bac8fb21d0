"""The pictures' numbers, and that every kind of study can be drawn."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from zoo.comparison.pictures import (
    confusion_change,
    draw_pictures,
    pareto_front,
    per_class_gain,
    plot_accuracy_against_latency,
    plot_class_differences,
)
from zoo.comparison.summary import summarize


@pytest.mark.parametrize("kind", ["one cell", "several data", "many classes", "without cost", "one seed"])
def test_every_study_is_drawn(make_results, tmp_path, kind):
    options = {
        "one cell": {"accuracy": {"none": 0.8}},
        "several data": {"accuracy": {"none": 0.8, "se": 0.82}, "data": ("x", "y"), "models": ("a", "b")},
        "many classes": {"accuracy": {"none": 0.5, "se": 0.6}, "class_names": [f"class {i}" for i in range(40)]},
        "without cost": {"accuracy": {"none": 0.8, "se": 0.82}, "cost": False},
        "one seed": {"accuracy": {"none": 0.8, "se": 0.82}, "seeds": (4,)},
    }[kind]
    results = make_results(**options)
    drawn = draw_pictures(results, summarize(results), tmp_path / "pictures")
    expected = {"one cell": 2, "without cost": 3}.get(kind, 4)
    assert len(drawn) == expected
    for path in drawn.values():
        with Image.open(path) as image:
            assert min(image.size) > 150


def test_the_front_holds_what_none_beats_in_both():
    assert pareto_front([2, 1, 3, 1], [0.9, 0.5, 0.9, 0.6]) == [3, 0]


def test_latency_is_drawn_from_the_measured_cost(make_results):
    results = make_results({"none": 0.8, "se": 0.82})
    figure = plot_accuracy_against_latency(results, summarize(results))
    (axes,) = figure.axes
    positions = sorted(line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o")
    assert positions == [3.0, 4.0]


def test_gain_per_class_and_change_of_confusions_are_counted_per_seed(make_results):
    results = make_results({"none": 0.7, "se": 0.8})
    summary = summarize(results)
    plain, gated = summary.cells
    gain = per_class_gain(results, gated, plain)
    counts = np.bincount(results.labels) / len(results.labels)
    assert (gain * counts).sum() == pytest.approx(gated.comparison.difference.mean)
    change = confusion_change(results, gated, plain)
    assert change.sum() == pytest.approx(-gated.comparison.difference.mean * len(results.labels))
    assert np.diag(change).tolist() == [0.0] * 4


def test_names_that_look_like_formulas_and_classes_without_images_are_drawn(make_results, tmp_path):
    results = make_results({"none": 0.7, "se": 0.8}, class_names=("$5_$", "$^10$", "a $ b $"))
    drawn = draw_pictures(results, summarize(results), tmp_path)
    assert len(drawn) == 4
    results = dataclasses.replace(results, class_names=(*results.class_names, "never seen"))
    figure = plot_class_differences(results, summarize(results))
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["$5_$", "$^10$", "a $ b $"]
