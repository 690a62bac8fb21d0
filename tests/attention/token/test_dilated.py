import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.dilated import DilatedAttention


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
    offset = (place - place[:, None]).abs()
    dilation, window = attention.pattern["dilation"], attention.pattern["window"]
    return (offset <= window * dilation) & (offset % dilation == 0)


def create(**options: int) -> DilatedAttention:
    torch.manual_seed(0)
    return DilatedAttention(64, num_heads=2, **options).double()


@pytest.mark.parametrize(("window", "dilation"), [(0, 1), (1, 1), (2, 3), (1, 7), (40, 2), (3, 200)])
@pytest.mark.parametrize("num_tokens", [1, 50, 131])
def test_a_token_looks_at_some_neighbours_with_gaps(window: int, dilation: int, num_tokens: int) -> None:
    attention = create(window=window, dilation=dilation)
    tokens = torch.randn(2, num_tokens, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(attention(tokens), formula(attention, tokens, None))
    assert torch.equal(attention.mask(num_tokens)[0, 0], see(attention, num_tokens))


def test_tokens_that_are_no_multiple_of_the_dilation_apart_never_meet() -> None:
    tokens = torch.randn(1, 12, 64, dtype=torch.float64).requires_grad_()
    create(window=2, dilation=3)(tokens)[:, 4].sum().backward()
    assert tokens.grad.ne(0).any(-1)[0].nonzero().flatten().tolist() == [1, 4, 7, 10]


@pytest.mark.parametrize(("options", "message"), [({"window": -1}, "window"), ({"dilation": 0}, "dilation")])
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create(**options)
