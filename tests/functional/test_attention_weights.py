"""Weights computed on demand are those that attention used."""

import math

import pytest
import torch

from zoo.functional import attention, attention_weights, causal_mask, padding_mask
from zoo.functional.attention import BACKENDS

OPTIONS = {
    "plain": {},
    "mask": {"mask": padding_mask(torch.tensor([0, 4]), 6)},
    "causal": {"is_causal": True},
    "window": {"window": 1, "alignment": "first"},
    "bias": {"bias": torch.randn(1, 3, 5, 6, generator=torch.Generator().manual_seed(4)), "scale": 0.7},
    "-inf": {"bias": torch.zeros(1, 1, 5, 6).masked_fill(~causal_mask(5, 6), -math.inf)},
}


def draw(tokens: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 3, tokens, 8, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("saved", [False, True])
def test_weights_are_what_the_reference_multiplies_an_identity_by(backend: str, options: dict, saved: bool) -> None:
    query, key, identity = draw(5, 0), draw(6, 1), torch.eye(6).expand(2, 3, 6, 6)
    sums = attention(query, key, identity, return_log_sum_exp=True, backend=backend, **options)[1] if saved else None
    weights = attention_weights(query, key, log_sum_exp=sums, **options)
    expected = attention(query, key, identity, backend="reference", **options)
    torch.testing.assert_close(weights, expected, rtol=2e-6, atol=1e-7)
    chosen = attention_weights(query, key, log_sum_exp=sums, heads=[2, 0], **options)
    torch.testing.assert_close(chosen, weights[:, [2, 0]])


def test_the_mask_of_each_head_goes_with_it() -> None:
    mask = (torch.arange(6) != torch.arange(3)[:, None])[None, :, None, :]
    weights = attention_weights(draw(5, 0), draw(6, 1), heads=[1], mask=mask)
    assert (weights == 0).any(2).tolist() == [[[False, True, False, False, False, False]]] * 2


def test_log_sum_exp_is_that_of_the_scores_whatever_the_number_of_queries() -> None:
    query, key = draw(600, 0, torch.float64), draw(600, 1, torch.float64)
    _, sums = attention(query, key, key, is_causal=True, return_log_sum_exp=True)
    scores = (query @ key.mT / 8**0.5).masked_fill(~causal_mask(600), -math.inf)
    torch.testing.assert_close(sums, scores.logsumexp(-1), rtol=1e-13, atol=1e-13)
    assert not sums.requires_grad


def test_blind_rows_have_minus_infinity_and_spoilt_ones_nan() -> None:
    query, key = draw(3, 0), draw(3, 1)
    key[0, 0, 1] = math.nan
    mask = torch.tensor([[False] * 3, [True, False, True], [True] * 3])[None, None]
    output, sums = attention(query, key, key, mask=mask, return_log_sum_exp=True)
    assert sums[:, :, 0].eq(-math.inf).all()
    assert sums.isnan().nonzero().tolist() == [[0, 0, 2]]
    weights = attention_weights(query, key, log_sum_exp=sums, mask=mask)
    assert weights[:, :, 0].eq(0).all()
    assert weights.isnan().any(-1).nonzero().tolist() == output.isnan().any(-1).nonzero().tolist() == [[0, 0, 2]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gives_weights_in_float32_that_sum_to_one(dtype: torch.dtype) -> None:
    weights = attention_weights(draw(5, 0, dtype), draw(6, 1, dtype))
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))


@pytest.mark.parametrize("heads", [[], [3], [-1], [True], [0.0]], ids=str)
def test_heads_that_do_not_exist_are_refused(heads: list) -> None:
    with pytest.raises(ValueError, match=r"heads \(.*\) must be one or more numbers from 0 to 2"):
        attention_weights(draw(5, 0), draw(6, 1), heads=heads)


def test_a_log_sum_exp_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log_sum_exp has shape \(2, 3, 4\), but must be .* \(2, 3, 5\)"):
        attention_weights(draw(5, 0), draw(6, 1), log_sum_exp=torch.zeros(2, 3, 4))
