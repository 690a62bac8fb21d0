import math

import pytest
import torch
from torch import Tensor

from zoo.functional import additive_attention, additive_attention_weights


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_keys_written_out_by_hand() -> None:
    """Scores 2 tanh(0.5 + 0) and 2 tanh(0.5 + 1), values 1 and 5."""
    query, key = torch.tensor([[[[0.5]]]]), torch.tensor([[[[0.0], [1.0]]]])
    first, second = math.exp(2 * math.tanh(0.5)), math.exp(2 * math.tanh(1.5))
    output = additive_attention(query, key, torch.tensor([[[[1.0], [5.0]]]]), torch.tensor([[2.0]]))
    torch.testing.assert_close(output.item(), (first + 5 * second) / (first + second))
    weights = additive_attention_weights(query, key, torch.tensor([[2.0]]))
    torch.testing.assert_close(weights.flatten(), torch.tensor([first, second]) / (first + second))


def test_each_head_has_its_own_vector() -> None:
    query, key, value, weight = draw(2, 3, 4, 8), draw(2, 3, 5, 8, seed=1), draw(2, 3, 5, 6, seed=2), draw(3, 8, seed=3)
    together = additive_attention(query, key, value, weight)
    for head in range(3):
        one = slice(head, head + 1)
        alone = additive_attention(query[:, one], key[:, one], value[:, one], weight[one])
        torch.testing.assert_close(together[:, one], alone)
        weights = additive_attention_weights(query, key, weight, heads=[head])
        torch.testing.assert_close(weights @ value[:, one], alone)


def test_hidden_garbage_reaches_nothing_and_blind_rows_are_zero() -> None:
    query, key, value, weight = draw(1, 2, 3, 8), draw(1, 2, 4, 8, seed=1), draw(1, 2, 4, 6, seed=2), draw(2, 8, seed=3)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0]], dtype=torch.bool)[None, None]
    dirty = [tensor.clone() for tensor in (key, value)]
    for tensor in dirty:
        tensor[:, :, 3] = math.nan
        tensor.requires_grad_()
    weight.requires_grad_()
    output = additive_attention(query, *dirty, weight, mask=mask)
    assert torch.equal(output, additive_attention(query, key, value, weight, mask=mask))
    assert output[:, :, 1].eq(0).all()
    output.sum().backward()
    assert all(tensor.grad[:, :, 3].eq(0).all() for tensor in dirty)
    assert weight.grad.isfinite().all()
    weights = additive_attention_weights(query, key, weight.detach(), heads=[1], mask=mask.expand(-1, 2, -1, -1))
    assert torch.equal(weights > 0, mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_computed_in_float32(dtype: torch.dtype) -> None:
    tensors = [draw(1, 2, 9, 8, seed=seed).to(dtype) for seed in range(3)]
    weight = draw(2, 8, seed=3).to(dtype)
    wide = additive_attention(*(tensor.float() for tensor in tensors), weight.float())
    assert torch.equal(additive_attention(*tensors, weight), wide.to(dtype))


def test_a_vector_of_another_shape_and_a_share_out_of_range_are_refused() -> None:
    tokens = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"weight has shape \(4,\), but must be \(heads, head_dim\) \(2, 4\)"):
        additive_attention(tokens, tokens, tokens, torch.zeros(4))
    with pytest.raises(ValueError, match=r"dropout_p \(1\) must be"):
        additive_attention(tokens, tokens, tokens, torch.zeros(2, 4), dropout_p=1)
    with pytest.raises(ValueError, match=r"heads \(\[2\]\) must be"):
        additive_attention_weights(tokens, tokens, torch.zeros(2, 4), heads=[2])
