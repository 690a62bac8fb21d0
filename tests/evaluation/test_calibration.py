import pytest
import torch

from zoo.evaluation.calibration import expected_calibration_error


def calibration_error_by_hand(logits: torch.Tensor, targets: torch.Tensor, num_bins: int, norm: str) -> float:
    confidences, answers = logits.double().softmax(dim=1).max(dim=1)
    gaps = []
    for number in range(num_bins):
        inside = (confidences > number / num_bins) & (confidences <= (number + 1) / num_bins)
        if inside.any():
            accuracy = (answers[inside] == targets[inside]).double().mean()
            gaps.append((inside.double().mean(), (accuracy - confidences[inside].mean()).abs()))
    if norm == "max":
        return max(float(gap) for _, gap in gaps)
    power = 1 if norm == "l1" else 2
    return float(sum(share * gap**power for share, gap in gaps)) ** (1 / power)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_equals_the_definition(norm, num_bins: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(400, 5, generator=generator)
    targets = torch.randint(5, (400,), generator=generator)
    expected = calibration_error_by_hand(logits, targets, num_bins, norm)
    assert expected_calibration_error(logits, targets, num_bins=num_bins, norm=norm) == pytest.approx(expected)


def test_logits_that_look_like_probabilities_are_logits() -> None:
    # Softmax of (0.9, 0.1) is (0.69, 0.31); taken for a probability, 0.9 would give an error of 0.1.
    error = expected_calibration_error(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
    assert error == pytest.approx(1 - 0.6899744811)


def test_certain_and_right_is_0_and_certain_and_wrong_is_1() -> None:
    logits = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    assert expected_calibration_error(logits, torch.tensor([0, 1])) == pytest.approx(0)
    assert expected_calibration_error(logits, torch.tensor([1, 0])) == pytest.approx(1)


def test_a_single_class_is_always_calibrated() -> None:
    assert expected_calibration_error(torch.randn(4, 1), torch.zeros(4, dtype=torch.long)) == 0.0
