import math
import subprocess
import sys
import warnings

import pytest
import torch

from zoo.layers.heads import check_heads, check_tokens, clear_padding, mask_of_keys, merge_heads, split_heads


def test_a_narrow_head_draws_one_warning_that_names_the_reason() -> None:
    """In a process of its own: another test may have built such a head before."""
    code = (
        "import warnings\n"
        "from zoo.attention.token.multi_head import MultiHeadSelfAttention\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(3): MultiHeadSelfAttention(48, num_heads=3)\n"
        "    MultiHeadSelfAttention(64, num_heads=2)\n"
        "print(len(caught), caught[0].message)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("1 head_dim (16) is under 32: matrix units and fused kernels work in tiles of 32")


def test_wide_heads_draw_none_and_the_number_must_divide_the_width() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_heads(96, 3) == 32
    with pytest.raises(ValueError, match=r"num_heads \(5\) must divide embed_dim \(192\)"):
        check_heads(192, 5)
    with pytest.raises(ValueError, match=r"num_heads \(True\) must be"):
        check_heads(192, True)
    with pytest.raises(ValueError, match=r"embed_dim \(0\) must be"):
        check_heads(0, 1)


def test_heads_are_columns_side_by_side_and_a_view() -> None:
    tokens = torch.arange(24).reshape(1, 2, 12)
    heads = split_heads(tokens, 3)
    assert heads[0, 1].tolist() == [[4, 5, 6, 7], [16, 17, 18, 19]]
    assert heads.data_ptr() == tokens.data_ptr()
    assert torch.equal(merge_heads(heads), tokens)


def test_padding_becomes_zero_whatever_it_holds_and_gets_no_gradient() -> None:
    tokens = torch.tensor([[[1.0], [math.nan], [math.inf]]], requires_grad=True)
    token_mask = torch.tensor([[True, False, False]])
    cleared = clear_padding(tokens, token_mask)
    assert cleared.tolist() == [[[1], [0], [0]]]
    cleared.sum().backward()
    assert tokens.grad.tolist() == [[[1], [0], [0]]]
    assert clear_padding(tokens, None) is tokens


def test_masks_of_tokens_and_of_pairs_join() -> None:
    token_mask = torch.tensor([[True, False], [True, True]])
    pairs = torch.tensor([[True, True], [False, True]])[None, None]
    assert mask_of_keys(token_mask).tolist() == [[[[True, False]]], [[[True, True]]]]
    assert mask_of_keys(token_mask, pairs)[:, 0].tolist() == [[[True, False], [False, False]], pairs[0, 0].tolist()]
    assert mask_of_keys(None, pairs) is pairs
    assert mask_of_keys(None) is None


def test_sequences_and_masks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"context has shape \(2, 3\), but must be \(batch, tokens, 3\)"):
        check_tokens("context", torch.zeros(2, 3), 3, None)
    with pytest.raises(ValueError, match=r"the mask of tokens \(torch.int64, shape \(2, 3\)\) must be boolean"):
        check_tokens("tokens", torch.zeros(2, 3, 4), 4, torch.ones(2, 3, dtype=torch.int64))
