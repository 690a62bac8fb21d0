import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.cross import CrossAttention
from zoo.functional import causal_mask


def formula(
    attention: nn.Module, tokens: Tensor, token_mask: Tensor | None, context: Tensor, context_mask: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V, queries from the tokens, keys and values from the context that exists."""
    query = functional.linear(tokens, *attention.query.parameters())
    key, value = functional.linear(context, *attention.key_value.parameters()).chunk(2, -1)
    visible = torch.ones(context.shape[:2], dtype=torch.bool) if context_mask is None else context_mask
    outputs = []
    for columns in torch.arange(tokens.shape[-1]).chunk(attention.num_heads):
        scores = query[..., columns] @ key[..., columns].mT / math.sqrt(len(columns))
        weights = scores.masked_fill(~visible[:, None], -1e4).softmax(-1) * visible[:, None]
        outputs.append(weights @ value[..., columns])
    output = functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())
    return output if token_mask is None else output * token_mask[..., None]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def create(**options: object) -> CrossAttention:
    torch.manual_seed(0)
    return CrossAttention(64, num_heads=2, **options).double()


@pytest.mark.parametrize("context_tokens", [1, 5, 11])
def test_a_context_of_another_length_and_width(context_tokens: int) -> None:
    attention, tokens, context = create(context_dim=48), draw(2, 7, 64), draw(2, context_tokens, 48, seed=1)
    output = attention(tokens, context)
    torch.testing.assert_close(output, formula(attention, tokens, None, context))
    assert attention.attention_weights(tokens, context, heads=[0]).shape == (2, 1, 7, context_tokens)
    assert sum(parameter.numel() for parameter in attention.parameters()) == 64 * 64 * 2 + 48 * 128 + 4 * 64


def test_hidden_context_reaches_nothing_and_none_at_all_gives_the_bias_of_the_projection() -> None:
    attention, tokens, context = create(), draw(2, 3, 64), draw(2, 4, 64, seed=1)
    context_mask = torch.tensor([[True, True, False, False], [False] * 4])
    dirty = context.masked_fill(~context_mask[..., None], math.nan).requires_grad_()
    output = attention(tokens, dirty, context_mask=context_mask)
    torch.testing.assert_close(output[0], attention(tokens[:1], context[:1, :2])[0])
    assert output[1].eq(attention.projection.bias).all()
    output.sum().backward()
    assert dirty.grad[~context_mask].eq(0).all()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


def test_pairs_and_biases() -> None:
    attention, tokens, context = create(), draw(2, 3, 64), draw(2, 4, 64, seed=1)
    mask = causal_mask(3, 4)
    hidden = torch.zeros(1, 1, 3, 4, dtype=torch.float64).masked_fill(~mask, -math.inf)
    output = attention(tokens, context, mask=mask)
    torch.testing.assert_close(output, attention(tokens, context, bias=hidden))
    torch.testing.assert_close(output[:, 0], attention(tokens, context[:, :2])[:, 0])


def test_a_context_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"context has shape \(2, 4, 48\), but must be \(batch, tokens, 64\)"):
        create()(draw(2, 3, 64), draw(2, 4, 48))
    with pytest.raises(ValueError, match=r"the mask of context \(torch.bool, shape \(2, 3\)\)"):
        create()(draw(2, 3, 64), draw(2, 4, 64), context_mask=torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="must agree in batch and heads"):
        create()(draw(2, 3, 64), draw(1, 4, 64))
    with pytest.raises(ValueError, match=r"context_dim \(0\) must be"):
        create(context_dim=0)
