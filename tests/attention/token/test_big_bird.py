import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.big_bird import BigBirdAttention


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
    """The random blocks are those of the module's mask; the rest is written out."""
    place = torch.arange(num_tokens)
    is_global = place < attention.pattern["num_global"]
    near = (place - place[:, None]).abs() <= attention.pattern["window"]
    return near | is_global | is_global[:, None] | attention.mask(num_tokens)[0, 0]


def create(**options: int) -> BigBirdAttention:
    torch.manual_seed(0)
    return BigBirdAttention(64, num_heads=2, **options).double()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 1, "num_global": 2, "num_random": 2, "block_size": 8},
        {"window": 0, "num_global": 0, "num_random": 1, "block_size": 16},
        {"window": 3, "num_random": 0},
        {"window": 1, "num_random": 50, "block_size": 4, "seed": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("num_tokens", [1, 50, 131])
def test_equals_attention_under_its_mask(options: dict, num_tokens: int) -> None:
    attention = create(**options)
    tokens = torch.randn(2, num_tokens, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(attention(tokens), formula(attention, tokens, None))


def test_each_block_looks_at_as_many_random_blocks_as_asked_for() -> None:
    attention = create(window=0, num_global=0, num_random=3, block_size=5)
    seen = attention.mask(100)[0, 0].unflatten(0, (20, 5)).unflatten(2, (20, 5)).all(3).all(1)
    assert seen.sum(1).tolist() == [3] * 20
    assert torch.equal(attention.mask(100), create(window=0, num_global=0, num_random=3, block_size=5).mask(100))
    assert not torch.equal(
        attention.mask(100), create(window=0, num_global=0, num_random=3, block_size=5, seed=1).mask(100)
    )


@pytest.mark.parametrize("options", [{"num_random": -1}, {"block_size": 0}, {"seed": -1}, {"seed": 0.5}], ids=str)
def test_options_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match="must be an integer of at least"):
        create(**options)
