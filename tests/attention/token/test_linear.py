import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.linear import LinearAttention
from zoo.functional import causal_mask


def formula(attention: nn.Module, tokens: Tensor, token_mask: Tensor | None) -> Tensor:
    """Weights phi(q_i) . phi(k_j) over their sum, phi(x) = elu(x) + 1, head by head."""
    query, key, value = functional.linear(tokens, *attention.query_key_value.parameters()).chunk(3, -1)
    visible = torch.ones(tokens.shape[:2], dtype=torch.bool) if token_mask is None else token_mask
    visible = visible[:, None] & causal_mask(tokens.shape[1])[0] if attention.is_causal else visible[:, None]
    outputs = []
    for columns in torch.arange(tokens.shape[-1]).chunk(attention.num_heads):
        features = functional.elu(query[..., columns]) + 1, functional.elu(key[..., columns]) + 1
        weights = (features[0] @ features[1].mT) * visible
        total = weights.sum(-1, keepdim=True)
        outputs.append((weights / torch.where(total == 0, 1, total)) @ value[..., columns])
    output = functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())
    return output if token_mask is None else output * token_mask[..., None]


def test_under_causality_no_token_hears_of_later_ones() -> None:
    torch.manual_seed(0)
    attention = LinearAttention(64, num_heads=2, is_causal=True).double()
    tokens = torch.randn(2, 90, 64, dtype=torch.float64).requires_grad_()
    token_mask = torch.arange(90) < torch.tensor([90, 30])[:, None]
    output = attention(tokens, token_mask=token_mask)
    torch.testing.assert_close(output, formula(attention, tokens, token_mask))
    (gradient,) = torch.autograd.grad(output[:, 20].sum(), tokens)
    assert gradient[:, 21:].eq(0).all()
    assert gradient[:, :21].ne(0).any(-1).all()
    weights = attention.attention_weights(tokens, heads=[1])
    assert torch.equal(weights > 0, causal_mask(90).expand(2, 1, 90, 90))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 90, dtype=torch.float64))
