"""Sparse attention against the plain formula under its mask, and what it costs."""

import math

import pytest
import torch
from torch import Tensor, nn

from zoo.evaluation.complexity import count_macs
from zoo.functional import attention, padding_mask
from zoo.functional.sparse_attention import sparse_attention, sparse_mask

PATTERNS = {
    "window": {"window": 3},
    "window of one": {"window": 0},
    "wide window": {"window": 40},
    "dilated": {"window": 2, "dilation": 3},
    "dilated wide": {"window": 20, "dilation": 2},
    "global": {"window": 2, "num_global": 2},
    "dilated global": {"window": 2, "dilation": 2, "num_global": 1},
    "random": {"window": 1, "num_random": 2, "block_size": 4},
    "big bird": {"window": 3, "num_global": 3, "num_random": 2, "block_size": 8, "seed": 5},
    "all random": {"window": 1, "num_global": 1, "num_random": 99, "block_size": 16},
    "all global": {"window": 1, "num_global": 99},
}


def draw(tokens: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, tokens, 8, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("tokens", [1, 5, 16, 67])
@pytest.mark.parametrize("lengths", [None, (0.0, 0.6)], ids=["full", "padded"])
def test_equals_the_reference_under_its_mask(backend: str, pattern: dict, tokens: int, lengths: tuple | None) -> None:
    inputs = [draw(tokens, seed) for seed in range(3)]
    key_mask = lengths and padding_mask(torch.tensor([math.ceil(share * tokens) for share in lengths]), tokens)
    output = sparse_attention(*inputs, key_mask=key_mask, backend=backend, **pattern)
    mask = sparse_mask(tokens, **pattern)
    expected = attention(*inputs, mask=mask if key_mask is None else mask & key_mask, backend="reference")
    torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-12)
    weights = draw(tokens, 9).detach()
    mine = torch.autograd.grad((output * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_a_mask_that_differs_between_heads() -> None:
    inputs = [draw(20, seed) for seed in range(3)]
    key_mask = torch.rand(2, 2, 1, 20, generator=torch.Generator().manual_seed(0)) > 0.5
    for mask in (key_mask, key_mask[:1], key_mask[:, :1]):
        output = sparse_attention(*inputs, window=2, key_mask=mask)
        expected = attention(*inputs, mask=sparse_mask(20, window=2) & mask, backend="reference")
        torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_nan_in_padding_reaches_nothing(pattern: dict) -> None:
    inputs = [draw(20, seed, torch.float32) for seed in range(3)]
    clean = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    with torch.no_grad():
        for tensor in inputs:
            tensor[:, :, 12:] = math.nan
    key_mask = padding_mask(torch.tensor([12, 12]), 20)
    grads = []
    for leaves in (inputs, clean):
        output = sparse_attention(*leaves, key_mask=key_mask, **pattern)[:, :, :12]
        grads.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


class OfLength(nn.Module):
    def __init__(self, pattern: dict) -> None:
        super().__init__()
        self.pattern = pattern

    def forward(self, images: Tensor) -> Tensor:
        tokens = images.transpose(1, 2).reshape(1, 1, -1, 8)
        return sparse_attention(tokens, tokens, tokens, **self.pattern)


@pytest.mark.parametrize("name", ["window", "dilated", "global", "big bird"])
def test_products_grow_linearly_with_the_tokens(name: str) -> None:
    counts = [count_macs(OfLength(PATTERNS[name]), (8, tokens, 1)) for tokens in (1920, 3840, 5760)]
    assert counts[2] - counts[1] == counts[1] - counts[0]
    # A query meets the keys of its block: at most the block, both sides of the window, global and random keys.
    assert counts[0] < 2 * 8 * 1920 * (16 + 6 + 4 + 16) + 2 * 8 * 1920 * 3
    whole = 2 * 8 * 1920 * 1920
    assert counts[0] < whole / 25


@pytest.mark.parametrize("name", ["window", "big bird"])
def test_compiles_without_a_break(name: str) -> None:
    tokens = draw(40, 0, torch.float32).detach()
    run = torch.compile(
        lambda tokens: sparse_attention(tokens, tokens, tokens, **PATTERNS[name]), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(run(tokens), sparse_attention(tokens, tokens, tokens, **PATTERNS[name]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -1}, r"window \(-1\) must be an integer of at least 0"),
        ({"window": 1, "dilation": 0}, r"dilation \(0\) must be"),
        ({"window": 1, "num_global": -1}, r"num_global \(-1\) must be"),
        ({"window": 1, "num_random": 1, "dilation": 2}, r"num_random \(1\) goes with dilation 1, not 2"),
        ({"window": 1, "block_size": 0}, r"block_size \(0\) must be"),
        ({"window": 1, "key_mask": torch.ones(1, 1, 4, 4, dtype=torch.bool)}, "must hide keys from all queries alike"),
        ({"window": 1, "key_mask": torch.ones(2, 4, dtype=torch.bool)}, r"mask has shape \(2, 4\)"),
        ({"window": 1, "dropout_p": 2}, r"dropout_p \(2\)"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    tokens = draw(4, 0)
    with pytest.raises(ValueError, match=message):
        sparse_attention(tokens, tokens, tokens, **options)


def test_as_many_keys_as_queries_are_needed() -> None:
    with pytest.raises(ValueError, match=r"needs as many keys \(2, 2, 5, 8\) as queries \(2, 2, 4, 8\)"):
        sparse_attention(draw(4, 0), draw(5, 0), draw(5, 0), window=1)
