import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.longformer import LongformerAttention


def formula(attention: nn.Module, tokens: Tensor, token_mask: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V under the mask of the pattern, head by head."""
    query, key, value = functional.linear(tokens, *attention.query_key_value.parameters()).chunk(3, -1)
    visible = see(attention, tokens.shape[1])
    visible = visible if token_mask is None else visible & token_mask[:, None]
    outputs = []
    for columns in torch.arange(tokens.shape[-1]).chunk(attention.num_heads):
        scores = query[..., columns] @ key[..., columns].mT / math.sqrt(len(columns))
        weights = scores.masked_fill(~visible, -1e4).softmax(-1) * visible
        outputs.append(weights @ value[..., columns])
    output = functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())
    return output if token_mask is None else output * token_mask[..., None]


def see(attention: nn.Module, num_tokens: int) -> Tensor:
    place = torch.arange(num_tokens)
    is_global = place < attention.pattern["num_global"]
    return ((place - place[:, None]).abs() <= attention.pattern["window"]) | is_global | is_global[:, None]


def create(**options: int) -> LongformerAttention:
    torch.manual_seed(0)
    return LongformerAttention(64, num_heads=2, **options).double()


@pytest.mark.parametrize(("window", "num_global"), [(0, 0), (1, 1), (4, 3), (0, 20), (60, 2)])
@pytest.mark.parametrize("num_tokens", [1, 50, 131])
def test_a_token_looks_at_its_neighbours_and_the_first_tokens_at_all(
    window: int, num_global: int, num_tokens: int
) -> None:
    attention = create(window=window, num_global=num_global)
    tokens = torch.randn(2, num_tokens, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(attention(tokens), formula(attention, tokens, None))
    assert torch.equal(attention.mask(num_tokens)[0, 0], see(attention, num_tokens))


def test_a_class_token_joins_both_ends_of_a_long_sequence() -> None:
    tokens = torch.randn(1, 200, 64, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(create(window=1)(tokens)[:, 150].sum(), tokens)
    assert gradient.ne(0).any(-1)[0].nonzero().flatten().tolist() == [0, 149, 150, 151]
    (gradient,) = torch.autograd.grad(create(window=1)(tokens)[:, 0].sum(), tokens)
    assert gradient.ne(0).any(-1).all()


@pytest.mark.parametrize("options", [{"window": -1}, {"num_global": -1}])
def test_options_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="must be an integer of at least 0"):
        create(**options)
