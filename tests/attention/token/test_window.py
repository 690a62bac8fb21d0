import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.attention.token.window import WindowAttention


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
    """Windows of a sequence, not shifted."""
    window = torch.arange(num_tokens) // attention.window_size[1]
    return window == window[:, None]


def create(**options: object) -> WindowAttention:
    torch.manual_seed(0)
    return WindowAttention(64, num_heads=2, **options).double()


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def attend(attention: WindowAttention, tokens: Tensor, seen: list[int], query: int) -> Tensor:
    """Output of one token that looks at those given."""
    fused = functional.linear(tokens[0], *attention.query_key_value.parameters())
    outputs = []
    for columns in torch.arange(64).chunk(2):
        scores = fused[seen][:, 64 + columns] @ fused[query, columns] / math.sqrt(32)
        outputs.append(scores.softmax(-1) @ fused[seen][:, 128 + columns])
    return functional.linear(torch.cat(outputs, -1), *attention.projection.parameters())


@pytest.mark.parametrize(
    ("options", "grid_size", "query", "seen"),
    [
        ({"window_size": 4}, None, 5, [4, 5, 6, 7]),
        ({"window_size": 4}, None, 9, [8, 9]),
        ({"window_size": 4, "shifted": True}, None, 5, [2, 3, 4, 5]),
        ({"window_size": 4, "shifted": True}, None, 0, [0, 1]),
        ({"window_size": 4, "shifted": True}, None, 9, [6, 7, 8, 9]),
        ({"window_size": 5, "shifted": True}, None, 4, [2, 3, 4, 5, 6]),
        ({"window_size": 99, "shifted": True}, None, 3, list(range(10))),
        ({"window_size": (1, 2)}, (2, 5), 8, [7, 8]),
        ({"window_size": (2, 2)}, (2, 5), 8, [2, 3, 7, 8]),
        ({"window_size": (2, 2)}, (5, 2), 9, [8, 9]),
        ({"window_size": (2, 2), "shifted": True}, (2, 5), 8, [3, 4, 8, 9]),
        ({"window_size": [2, 3], "shifted": True}, (5, 2), 3, [2, 3, 4, 5]),
    ],
)
def test_a_token_looks_at_its_own_window(options: dict, grid_size: tuple | None, query: int, seen: list[int]) -> None:
    attention, tokens = create(**options), draw(1, 10, 64)
    output = attention(tokens, grid_size=grid_size)
    torch.testing.assert_close(output[0, query], attend(attention, tokens, seen, query))
    assert attention.mask(10, grid_size)[0, 0, query].nonzero().flatten().tolist() == seen
    weights = attention.attention_weights(tokens, grid_size=grid_size)
    assert weights[0, 1, query].nonzero().flatten().tolist() == seen


def test_two_layers_one_of_them_shifted_join_neighbouring_windows() -> None:
    tokens = draw(1, 12, 64).requires_grad_()
    create(window_size=4, shifted=True)(create(window_size=4)(tokens))[:, 5].sum().backward()
    assert tokens.grad.ne(0).any(-1)[0].nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("shifted", [False, True])
def test_the_relative_bias_depends_on_head_and_offset_alone(shifted: bool) -> None:
    attention, tokens = create(window_size=(2, 3), relative_bias=True, shifted=shifted), draw(2, 20, 64)
    plain = create(window_size=(2, 3), shifted=shifted)
    plain.load_state_dict(attention.state_dict(), strict=False)
    ratio = attention.attention_weights(tokens, grid_size=(4, 5)) / plain.attention_weights(tokens, grid_size=(4, 5))
    place = torch.arange(20)
    rows, columns = place // 5 - (place // 5)[:, None], place % 5 - (place % 5)[:, None]
    bias = attention.relative_bias.table[:, rows.clamp(-1, 1) + 1, columns.clamp(-2, 2) + 2]
    visible = attention.mask(20, (4, 5))
    shares = torch.where(visible, ratio / bias.exp(), torch.nan)
    # Up to the sum that each row is divided by, the bias is all there is between the two.
    torch.testing.assert_close(shares.nan_to_num(-1).amax(-1), -(-shares).nan_to_num(-9).amax(-1))
    output = attention(tokens, grid_size=(4, 5))
    output.sum().backward()
    assert attention.relative_bias.table.grad.abs().sum() > 0
    one = attention.attention_weights(tokens, heads=[1], grid_size=(4, 5))
    torch.testing.assert_close(one[:, 0], attention.attention_weights(tokens, grid_size=(4, 5))[:, 1])


@pytest.mark.parametrize(
    ("options", "grid_size", "message"),
    [
        ({"window_size": 4}, (2, 5), r"grid_size \(\(2, 5\)\) must be None for windows of a sequence"),
        ({"window_size": (2, 2)}, None, r"grid_size \(None\) must be the rows and columns"),
        ({"window_size": (2, 2)}, (3, 4), r"grid_size \(3, 4\) has 12 tokens, but there are 10"),
        ({"window_size": 0}, None, r"window_size \(0\) must be"),
        ({"window_size": (2, 0)}, None, r"window_size columns \(0\) must be"),
        ({"window_size": (2, 2, 2)}, None, r"window_size \(\(2, 2, 2\)\) must be an integer, or two"),
        ({"window_size": "7"}, None, r"window_size \('7'\) must be an integer, or two"),
        ({"shifted": 1}, None, r"shifted \(1\) must be True or False"),
    ],
)
def test_windows_and_grids_that_do_not_fit_are_refused(options: dict, grid_size: tuple | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create(**options)(draw(1, 10, 64), grid_size=grid_size)
