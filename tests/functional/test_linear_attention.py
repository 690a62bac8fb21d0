"""Linear attention against its weights written out."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from zoo.functional import causal_mask, linear_attention, padding_mask


def draw(tokens: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, 2, tokens, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def plain(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    query, key = torch.nn.functional.elu(query) + 1, torch.nn.functional.elu(key) + 1
    weights = (query @ key.mT) * visible
    total = weights.sum(-1, keepdim=True)
    return torch.where(total == 0, 0, weights @ value / torch.where(total == 0, 1, total))


@pytest.mark.parametrize(("tokens", "block_size"), [(1, 64), (7, 3), (8, 4), (130, 64), (65, 1)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_equals_its_weights_written_out(tokens: int, block_size: int, is_causal: bool, with_lengths: bool) -> None:
    inputs = [draw(tokens, seed).requires_grad_() for seed in range(3)]
    mask = padding_mask(torch.tensor([0, (tokens + 1) // 2]), tokens) if with_lengths else None
    visible = torch.ones(1, 1, 1, 1) if mask is None else mask.double()
    visible = visible * causal_mask(tokens) if is_causal else visible
    output = linear_attention(*inputs, key_mask=mask, is_causal=is_causal, block_size=block_size)
    expected = plain(*inputs, visible)
    torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-12)
    weights = draw(tokens, 9)
    mine = torch.autograd.grad((output * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_cross_attention_of_other_lengths() -> None:
    query, key = draw(3, 0), draw(8, 1)
    torch.testing.assert_close(linear_attention(query, key, key), plain(query, key, key, torch.ones(1, 1, 1, 1)))
    with pytest.raises(ValueError, match=r"is_causal needs as many keys \(8\) as queries \(3\)"):
        linear_attention(query, key, key, is_causal=True)


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_what_hidden_entries_hold_reaches_nothing(where: int, is_causal: bool, garbage: float) -> None:
    inputs = [draw(6, seed).requires_grad_() for seed in range(3)]
    clean = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    with torch.no_grad():
        inputs[where][:, :, 3] = garbage
    options: dict = {"is_causal": True} if is_causal else {"key_mask": padding_mask(torch.tensor([3, 3]), 6)}
    run: Callable[..., Tensor] = lambda tensors: linear_attention(*tensors, **options)[:, :, :3]  # noqa: E731
    output, expected = run(inputs), run(clean)
    torch.testing.assert_close(output, expected)
    mine, theirs = (torch.autograd.grad(one.sum(), leaves) for one, leaves in ((output, inputs), (expected, clean)))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)
    if is_causal:
        assert linear_attention(*inputs, is_causal=True)[:, :, 3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    tokens = torch.full((1, 1, 5000, 5), 10.0, dtype=dtype)
    for is_causal in (False, True):
        output = linear_attention(tokens, tokens, tokens, is_causal=is_causal)
        assert output.dtype == dtype
        assert output.eq(10).all()


def test_features_far_below_zero_underflow_without_nan() -> None:
    tokens = torch.full((1, 1, 3, 5), -1e4).requires_grad_()
    output = linear_attention(tokens, tokens, torch.ones(1, 1, 3, 5))
    output.sum().backward()
    assert output.eq(0).all()
    assert tokens.grad.isfinite().all()


def test_a_mask_of_pairs_is_refused() -> None:
    tokens = draw(4, 0)
    with pytest.raises(ValueError, match=r"key_mask has shape \(1, 1, 4, 4\), but must hide keys from all queries"):
        linear_attention(tokens, tokens, tokens, key_mask=causal_mask(4))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 4\)"):
        linear_attention(tokens, tokens, tokens, key_mask=torch.ones(2, 4, dtype=torch.bool))
