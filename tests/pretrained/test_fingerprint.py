import pytest
import torch
from torch import nn

from zoo.pretrained.fingerprint import NUM_LOGITS, compare_fingerprint, fingerprint_input, take_fingerprint


class Head(nn.Module):
    """Logits that are simply the first pixels plus an offset."""

    def __init__(self, num_classes: int, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.full((num_classes,), offset))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, : len(self.offset)] + self.offset


def test_the_input_follows_its_formula_exactly() -> None:
    image = fingerprint_input((3, 4, 5))
    assert image.shape == (1, 3, 4, 5)
    assert image.dtype == torch.float32
    assert image.flatten().tolist() == [(7919 * i % 1024) / 512 - 1 for i in range(60)]
    assert len(set(image.flatten().tolist())) == 60, "no two pixels are equal, so no permutation goes unnoticed"


def test_logits_are_kept_to_the_last_digit_of_float32() -> None:
    fingerprint = take_fingerprint(Head(7, offset=1 / 3), (3, 2, 2))
    expected = Head(7, offset=1 / 3)(fingerprint_input((3, 2, 2)))[0]
    assert torch.equal(torch.tensor(fingerprint["logits"], dtype=torch.float32), expected)
    assert fingerprint["input"] == [3, 2, 2]


def test_many_classes_are_cut_to_the_first() -> None:
    assert len(take_fingerprint(Head(20), (3, 8, 8))["logits"]) == NUM_LOGITS


def test_the_model_keeps_mode_dtype_and_values() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)).double().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    take_fingerprint(model, (3, 2, 2))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model[2].weight.dtype == torch.float64


@pytest.mark.parametrize(("offset", "scale"), [(2e-4, 1.0), (2e-2, 100.0)])
def test_a_difference_above_the_tolerance_is_refused_and_half_of_it_is_not(offset: float, scale: float) -> None:
    model = Head(3, offset=scale)
    fingerprint = take_fingerprint(model, (3, 2, 2))
    with torch.no_grad():
        model.offset.add_(offset / 4)
    compare_fingerprint(model, fingerprint)
    with torch.no_grad():
        model.offset.add_(offset)
    with pytest.raises(ValueError, match="the code no longer computes what these weights were trained in"):
        compare_fingerprint(model, fingerprint)


def test_another_number_of_logits_is_refused() -> None:
    with pytest.raises(ValueError, match="the fingerprint has 3 logits, the model gives 4"):
        compare_fingerprint(Head(4), take_fingerprint(Head(3), (3, 2, 2)))
