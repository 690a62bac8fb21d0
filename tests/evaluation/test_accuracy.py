import json

import pytest
import torch
from torchmetrics.functional.classification import multiclass_accuracy

from zoo.evaluation.accuracy import compute_metrics, scalar_metrics, top_k_accuracy
from zoo.evaluation.predictions import Predictions


def names(count: int) -> list[str]:
    return [f"class_{number}" for number in range(count)]


def answers(classes: list[int], targets: list[int], num_classes: int) -> Predictions:
    logits = torch.nn.functional.one_hot(torch.tensor(classes), num_classes).float()
    return Predictions(logits, torch.tensor(targets), torch.arange(len(targets)))


def random_predictions(num_images: int, num_classes: int) -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_images, num_classes, generator=generator)
    return Predictions(logits, torch.randint(num_classes, (num_images,), generator=generator), torch.arange(num_images))


def test_micro_and_macro_are_told_apart_and_absent_classes_left_out() -> None:
    metrics = compute_metrics(answers([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], 3), names(3))
    assert metrics["top1"] == 0.8
    assert metrics["macro_accuracy"] == 0.75
    assert metrics["per_class"] == {"class_0": 1.0, "class_1": 0.5, "class_2": None}
    assert metrics["num_per_class"] == {"class_0": 3, "class_1": 2, "class_2": 0}


def test_perfect_answers_on_a_test_set_that_lacks_a_class_are_perfect() -> None:
    metrics = compute_metrics(answers([0, 1, 1], [0, 1, 1], 3), names(3))
    assert (metrics["top1"], metrics["macro_accuracy"]) == (1.0, 1.0)


def test_an_absent_class_that_is_answered_wrongly_does_not_count_as_a_class_with_accuracy_0() -> None:
    metrics = compute_metrics(answers([0, 2, 1], [0, 0, 1], 3), names(3))
    assert metrics["macro_accuracy"] == 0.75
    assert metrics["per_class"]["class_2"] is None


def test_adding_an_unused_class_changes_no_accuracy() -> None:
    with_two = compute_metrics(answers([0, 1, 0], [0, 1, 1], 2), names(2))
    with_five = compute_metrics(answers([0, 1, 0], [0, 1, 1], 5), names(5))
    for figure in ("top1", "macro_accuracy"):
        assert with_two[figure] == with_five[figure]


def test_rows_of_the_confusion_matrix_are_true_classes() -> None:
    metrics = compute_metrics(answers([1, 1, 2], [0, 1, 1], 3), names(3))
    assert metrics["confusion"] == [[0, 1, 0], [0, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("num_classes", [1, 2, 3, 5])
def test_top5_is_left_out_where_it_means_nothing(num_classes: int) -> None:
    metrics = compute_metrics(random_predictions(20, num_classes), names(num_classes))
    assert "top5" not in metrics
    assert 0 <= metrics["top1"] <= 1


def test_top5_is_given_from_six_classes_on_and_is_not_always_1() -> None:
    metrics = compute_metrics(random_predictions(600, 6), names(6))
    assert 0.75 < metrics["top5"] < 0.9


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_agrees_with_torchmetrics_where_there_are_no_ties(k: int) -> None:
    predictions = random_predictions(500, 10)
    expected = multiclass_accuracy(predictions.logits, predictions.targets, 10, average="micro", top_k=k)
    assert top_k_accuracy(predictions.logits, predictions.targets, k=k) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("k", [0, 6, 7])
def test_top_k_refuses_a_k_that_says_nothing(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k \({k}\) must be at least 1 and below the number of classes \(6\)"):
        top_k_accuracy(torch.zeros(1, 6), torch.tensor([0]), k=k)


def test_ties_go_to_the_lower_class() -> None:
    targets = torch.tensor([0, 0, 4, 5, 6])
    metrics = compute_metrics(Predictions(torch.zeros(5, 7), targets, torch.arange(5)), names(7))
    assert metrics["top1"] == 2 / 5
    assert metrics["top5"] == 3 / 5


def test_likelihood_and_calibration_of_a_known_case() -> None:
    # Softmax of (log 3, 0) is (0.75, 0.25): the first image is right, the second wrong.
    logits = torch.tensor([[3.0, 1.0], [3.0, 1.0]]).log()
    metrics = compute_metrics(Predictions(logits, torch.tensor([0, 1]), torch.arange(2)), names(2))
    assert metrics["nll"] == pytest.approx(-(torch.tensor([0.75, 0.25]).log().mean().item()))
    assert metrics["ece"] == pytest.approx(0.25)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_broken_logits_are_an_error_and_never_an_accuracy(broken: float) -> None:
    logits = torch.zeros(4, 3)
    logits[2, 1] = broken
    with pytest.raises(ValueError, match=r"logits of 1 of 4 images are NaN or infinite \(first: image 2\)"):
        compute_metrics(Predictions(logits, torch.tensor([0, 0, 1, 2]), torch.arange(4)), names(3))


@pytest.mark.parametrize("target", [-1, 3])
def test_a_target_that_is_no_class_is_named_with_its_image(target: int) -> None:
    predictions = Predictions(torch.zeros(3, 3), torch.tensor([0, 1, target]), torch.tensor([10, 11, 12]))
    with pytest.raises(ValueError, match=rf"must lie in 0..2; image 12 has {target}"):
        compute_metrics(predictions, names(3))


def test_class_names_must_fit_and_differ() -> None:
    predictions = random_predictions(4, 3)
    with pytest.raises(ValueError, match="the logits have 3 classes, but 2 class names are given"):
        compute_metrics(predictions, names(2))
    with pytest.raises(ValueError, match="must differ; repeated: cat"):
        compute_metrics(predictions, ["cat", "dog", "cat"])


def test_no_images_are_an_error() -> None:
    empty = Predictions(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="at least one image"):
        compute_metrics(empty, names(3))


def test_metrics_are_plain_values() -> None:
    metrics = compute_metrics(random_predictions(50, 7), names(7))
    assert json.loads(json.dumps(metrics)) == metrics
    assert set(scalar_metrics(metrics)) == {"num_images", "top1", "top5", "macro_accuracy", "nll", "ece"}
