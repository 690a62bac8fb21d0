import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.functional import causal_mask, sliding_window_mask
from zoo.layers.positions import RotaryPositions2d


def formula(
    attention: nn.Module, tokens: Tensor, token_mask: Tensor | None, *, visible: Tensor | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V over the tokens that exist, head by head."""
    query, key, value = functional.linear(tokens, *attention.query_key_value.parameters()).chunk(3, -1)
    keys = torch.ones(tokens.shape[:2], dtype=torch.bool) if token_mask is None else token_mask
    visible = keys[:, None, :] if visible is None else keys[:, None, :] & visible
    outputs = []
    for columns in torch.arange(tokens.shape[-1]).chunk(attention.num_heads):
        scores = query[..., columns] @ key[..., columns].mT / math.sqrt(len(columns))
        weights = scores.masked_fill(~visible, -1e4).softmax(-1) * visible
        outputs.append(weights @ value[..., columns])
    output = functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())
    return output if token_mask is None else output * token_mask[..., None]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def create(**options: object) -> MultiHeadSelfAttention:
    torch.manual_seed(0)
    return MultiHeadSelfAttention(64, num_heads=2, **options).double()


@pytest.mark.parametrize(
    ("options", "visible"),
    [
        ({"is_causal": True}, causal_mask(9)),
        ({"window": 2}, sliding_window_mask(9, window=2)),
        ({"is_causal": True, "window": 1}, causal_mask(9) & sliding_window_mask(9, window=1)),
    ],
)
def test_causality_and_window_hide_what_their_masks_hide(options: dict, visible: Tensor) -> None:
    tokens, token_mask = draw(2, 9, 64), torch.arange(9) < torch.tensor([9, 4])[:, None]
    attention = create(**options)
    expected = formula(attention, tokens, token_mask, visible=visible[0])
    torch.testing.assert_close(attention(tokens, token_mask=token_mask), expected)
    torch.testing.assert_close(create()(tokens, token_mask=token_mask, mask=visible), expected)


def test_parameters_are_those_of_the_published_layer() -> None:
    assert sum(parameter.numel() for parameter in create().parameters()) == 4 * 64 * 64 + 4 * 64
    assert sum(parameter.numel() for parameter in create(qkv_bias=False).parameters()) == 4 * 64 * 64 + 64
    assert sum(parameter.numel() for parameter in create(qk_norm=True).parameters()) == 4 * 64 * 64 + 4 * 64 + 4 * 32


def test_equals_torchs_own_layer() -> None:
    theirs, mine = nn.MultiheadAttention(64, 2, batch_first=True).double(), create()
    mine.load_state_dict(
        {
            "query_key_value.weight": theirs.in_proj_weight,
            "query_key_value.bias": theirs.in_proj_bias,
            "projection.weight": theirs.out_proj.weight,
            "projection.bias": theirs.out_proj.bias,
        }
    )
    tokens = draw(2, 9, 64)
    expected, weights = theirs(tokens, tokens, tokens, average_attn_weights=False)
    torch.testing.assert_close(mine(tokens), expected)
    torch.testing.assert_close(mine.attention_weights(tokens), weights)


def test_a_bias_and_a_rotation_reach_the_scores() -> None:
    attention, tokens = create(), draw(1, 6, 64)
    bias = draw(1, 2, 6, 6).requires_grad_()
    attention(tokens, bias=bias).sum().backward()
    assert bias.grad.abs().max() > 0
    rotation = RotaryPositions2d(32)((2, 3))
    for options in ({"bias": bias}, {"rotation": rotation}):
        assert not torch.allclose(attention(tokens, **options), attention(tokens))
        value = functional.linear(tokens, *attention.query_key_value.parameters())[..., 128:]
        weights = attention.attention_weights(tokens, **options)
        mixed = torch.cat([weights[:, head] @ value[..., 32 * head : 32 * head + 32] for head in range(2)], -1)
        expected = functional.linear(mixed, *attention.projection.parameters())
        torch.testing.assert_close(attention(tokens, **options), expected)


def test_qk_norm_keeps_scores_small_whatever_the_tokens() -> None:
    attention, tokens = create(qk_norm=True), 1e3 * draw(1, 6, 64)
    query, key, _ = attention.project(tokens)
    assert (query @ key.mT).abs().max() <= 32 + 1e-6
    assert create().attention_weights(tokens).max() > 0.999 > attention.attention_weights(tokens).min() > 0


def test_tokens_change_places_with_the_output() -> None:
    """Without positions, self attention does not know the order of the tokens; causality tells it."""
    tokens, order = draw(2, 9, 64), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(create()(tokens[:, order]), create()(tokens)[:, order])
    causal = create(is_causal=True)
    assert not torch.allclose(causal(tokens[:, order]), causal(tokens)[:, order])


def test_a_mask_of_pairs_must_have_four_axes_with_a_token_mask_too() -> None:
    tokens, token_mask = draw(2, 9, 64), torch.ones(2, 9, dtype=torch.bool)
    for more in ({}, {"token_mask": token_mask}):
        with pytest.raises(ValueError, match=r"shape \(9, 9\)"):
            create()(tokens, mask=torch.ones(9, 9, dtype=torch.bool), **more)
    with pytest.raises(ValueError, match=r"is_causal \(1\) must be"):
        create(is_causal=1)
    with pytest.raises(ValueError, match=r"window \(-1\) must be"):
        create(window=-1)
