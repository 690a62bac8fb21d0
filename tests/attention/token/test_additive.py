import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.additive import AdditiveAttention
from zoo.functional import causal_mask


def formula(attention: nn.Module, tokens: Tensor, token_mask: Tensor | None) -> Tensor:
    """softmax(v^T tanh(q_i + k_j)) V over the tokens that exist, head by head and query by query."""
    query, key, value = functional.linear(tokens, *attention.query_key_value.parameters()).chunk(3, -1)
    keys = torch.ones(tokens.shape[:2], dtype=torch.bool) if token_mask is None else token_mask
    outputs = []
    for head, columns in enumerate(torch.arange(tokens.shape[-1]).chunk(attention.num_heads)):
        rows = []
        for one in query[..., columns].unbind(1):
            scores = torch.tanh(one[:, None] + key[..., columns]) @ attention.score[head]
            weights = scores.masked_fill(~keys, -1e4).softmax(-1) * keys
            rows.append((weights[..., None] * value[..., columns]).sum(1))
        outputs.append(torch.stack(rows, 1))
    output = functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())
    return output if token_mask is None else output * token_mask[..., None]


def create() -> AdditiveAttention:
    torch.manual_seed(0)
    return AdditiveAttention(64, num_heads=2).double()


def test_it_has_a_score_vector_per_head_beside_the_projections() -> None:
    assert sum(parameter.numel() for parameter in create().parameters()) == 4 * 64 * 64 + 4 * 64 + 2 * 32


def test_a_mask_of_pairs_hides_them() -> None:
    attention = create()
    tokens = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    output = attention(tokens, mask=causal_mask(5))
    for last in range(5):
        torch.testing.assert_close(output[:, last], formula(attention, tokens[:, : last + 1], None)[:, last])
    weights = attention.attention_weights(tokens, mask=causal_mask(5))
    assert torch.equal(weights > 0, causal_mask(5).expand(2, 2, 5, 5))
