import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from zoo.evaluation.report import MAX_CLASS_ROWS, compare_with_claim, describe_claim, print_report
from zoo.pretrained import WeightCard


@pytest.fixture
def card(tmp_path: Path, save_tiny_weights) -> WeightCard:
    """Claims 0.5 for the last epoch on the test images of cluttered_digits with clutter 2."""
    card = save_tiny_weights(tmp_path / "a.yaml")
    return dataclasses.replace(card, data={**card.data, "options": {"clutter": 2}})


def test_the_same_accuracy_is_called_exact(card: WeightCard) -> None:
    claim = compare_with_claim(card, 0.5, "cluttered_digits", "test", {"clutter": 2})
    assert claim == {"measured": 0.5, "claimed": 0.5, "epoch": "last_epoch", "difference": 0.0, "agrees": True}
    assert describe_claim(claim) == "Measured 50.00 % top-1: exactly what the card says of the last epoch."


@pytest.mark.parametrize(("measured", "agrees"), [(0.501, True), (0.499, True), (0.504, False), (0.496, False)])
def test_a_difference_of_more_than_a_fifth_of_a_point_is_a_disagreement(card, measured: float, agrees: bool) -> None:
    claim = compare_with_claim(card, measured, "cluttered_digits", "test", {"clutter": 2})
    assert claim["agrees"] is agrees
    verdict = "agrees with" if agrees else "DOES NOT AGREE with"
    sentence = f"Measured {100 * measured:.2f} % top-1: {verdict} the card's 50.00 % of the last epoch"
    assert describe_claim(claim) == f"{sentence} ({100 * measured - 50:+.2f} points)."


@pytest.mark.parametrize(
    ("name", "split", "options", "reason"),
    [
        ("cifar10", "test", {}, "the card is about cluttered_digits, test"),
        ("cluttered_digits", "val", {"clutter": 2}, "the card is about cluttered_digits, test"),
        ("cluttered_digits", "test", {"clutter": 3}, "other options of cluttered_digits: clutter"),
        ("cluttered_digits", "test", {"clutter": 2, "seed": 1}, "other options of cluttered_digits: seed"),
    ],
)
def test_other_images_are_compared_with_nothing(card, name: str, split: str, options: dict, reason: str) -> None:
    claim = compare_with_claim(card, 0.5, name, split, options)
    assert set(claim) == {"measured", "reason"}
    assert reason in describe_claim(claim)


def test_options_that_do_not_choose_images_and_defaults_spelled_out_change_nothing(card: WeightCard) -> None:
    options = {"clutter": 2, "seed": 0, "batch_size": 7, "eval_batch_size": 9}
    assert compare_with_claim(card, 0.5, "cluttered_digits", "test", options)["agrees"]


def test_a_card_without_an_accuracy_is_compared_with_nothing(card: WeightCard) -> None:
    bare = dataclasses.replace(card, metrics={"stored": "last_epoch", "selected_epoch": {}, "last_epoch": {}})
    assert "no top1" in compare_with_claim(bare, 0.5, "cluttered_digits", "test", {"clutter": 2})["reason"]


def make_report(num_classes: int) -> dict:
    """A report in which class number i has an accuracy of i percent, and the last has no images."""
    names = [f"class_{number}" for number in range(num_classes)]
    per_class = {name: number / 100 for number, name in enumerate(names)}
    per_class[names[-1]] = None
    timing = {"batch_size": 1, "median_ms": 2.0, "lower_quartile_ms": 1.5, "upper_quartile_ms": 2.5, "num_threads": 3}
    return {
        "weights": "w",
        "data": {"name": "d", "split": "test", "description": "[bold] is not markup"},
        "metrics": {
            "num_images": 1234,
            "top1": 0.5,
            "macro_accuracy": 0.25,
            "nll": 1.0,
            "ece": 0.125,
            "per_class": per_class,
            "num_per_class": {name: number for number, name in enumerate(names)},
        },
        "claim": {"measured": 0.5, "reason": "none"},
        "cost": {
            "parameters": 1000,
            "macs": 2000,
            "input_size": [3, 4, 5],
            "latency": [{**timing, "device": "cpu"}],
            "peak_memory_mib": {"1": 1.5},
        },
        "hardware": {"accelerator": None},
    }


def printed(report: dict) -> str:
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=100))
    return stream.getvalue()


def test_both_averages_are_named_and_top5_is_left_out_where_there_is_none() -> None:
    text = printed(make_report(3))
    assert "top-1 (micro, over images)             │ 50.00 %" in text
    assert "top-1 (macro, over classes that occur) │ 25.00 %" in text
    assert "top-5" not in text
    assert "latency, batch 1 (cpu, threads: 3)     │ 2.00 ms (quartiles 1.50 to 2.50)" in text
    assert "[bold] is not markup" in text


def test_a_class_without_images_is_not_shown_as_0() -> None:
    assert "class_2 │ 2      │ n/a" in printed(make_report(3))


def test_of_many_classes_the_lowest_are_shown() -> None:
    report = make_report(100)
    text = " ".join(printed(report).split())
    assert f"the {MAX_CLASS_ROWS} classes of 100 with the lowest accuracy" in text
    assert "class_0 " in text
    assert f"class_{MAX_CLASS_ROWS - 1} " in text
    assert f"class_{MAX_CLASS_ROWS} " not in text
