import math

import pytest
import torch

from zoo.functional import stable_softmax

INF, NAN = math.inf, math.nan


def test_values_are_those_written_out_and_large_scores_do_not_overflow() -> None:
    scores = torch.tensor([[0.0, math.log(3)], [1000.0, 1000.0], [-1e30, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(stable_softmax(scores), expected, rtol=1e-15, atol=0)
    torch.testing.assert_close(stable_softmax(scores.mT, dim=0), expected.mT, rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("how", ["mask", "score"])
def test_hidden_entries_and_hidden_rows_are_zero_with_zero_gradients(dtype: torch.dtype, how: str) -> None:
    visible = torch.tensor([[True, False, True], [False, False, False]])
    scores = torch.tensor([[0.0, NAN, 0.0], [NAN, INF, 2.0]])
    mask = visible if how == "mask" else None
    scores = (scores if how == "mask" else torch.where(visible, scores, -INF)).to(dtype).requires_grad_()
    weights = stable_softmax(scores, mask=mask)
    assert weights.dtype == dtype
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]
    (weights * torch.tensor([1.0, 9.0, 3.0])).sum().backward()
    assert scores.grad.tolist() == [[-0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_half_precision_is_summed_in_float32() -> None:
    weights = stable_softmax(torch.zeros(1, 70_000, dtype=torch.float16))
    assert weights[0, 0].item() == pytest.approx(1 / 70_000, rel=0.01)


def test_gradients_are_right_twice() -> None:
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    assert torch.autograd.gradcheck(lambda scores: stable_softmax(scores, mask=mask), scores)
    assert torch.autograd.gradgradcheck(lambda scores: stable_softmax(scores, mask=mask), scores)
