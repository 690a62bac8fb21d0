"""Sparse attention of one sequence to itself: a window, dilated or not, global tokens, random blocks of keys."""

from functools import partial
from typing import TypedDict

import torch
from torch import Tensor

from zoo.functional.attention import attention
from zoo.functional.attention_inputs import prepare_inputs
from zoo.functional.block_sparse import block_sparse_attention, local_pattern
from zoo.functional.masks import dilated_mask, global_mask, random_mask, unite_masks
from zoo.functional.validation import check_count, check_positive_int


class SparsePattern(TypedDict):
    """Who looks at whom; see :func:`sparse_attention`."""

    window: int
    dilation: int
    num_global: int
    num_random: int
    block_size: int
    seed: int


def sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int,
    dilation: int = 1,
    num_global: int = 0,
    num_random: int = 0,
    block_size: int = 64,
    seed: int = 0,
    key_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    """Return the attention under :func:`sparse_mask`, in time and memory linear in the tokens.

    Each block of queries loads the keys of its window, the global tokens and its random blocks, and nothing else; only
    the global tokens look at everything.

    Args:
        query: (batch, heads, tokens, head_dim)
        key: (batch, heads, tokens, head_dim)
        value: (batch, heads, tokens, value_dim)
        window: Keys to either side that a query looks at, at least 0.
        dilation: Distance between these keys, at least 1; without random blocks if above 1.
        num_global: How many of the first tokens look at all tokens, and are looked at by all.
        num_random: Blocks of keys that each block of queries looks at besides.
        block_size: Size of these blocks, at least 1.
        seed: What they are drawn from.
        key_mask: Boolean (batch, heads, 1, tokens), each axis its size or 1; True for keys to look at.
        dropout_p: As for :func:`zoo.functional.attention.attention`.
        backend: As there.

    Returns:
        (batch, heads, tokens, value_dim)

    Raises:
        ValueError: A shape or option is not as described.
    """
    check_pattern(
        window=window,
        dilation=dilation,
        num_global=num_global,
        num_random=num_random,
        block_size=block_size,
        seed=seed,
    )
    if not query.shape[2:3] == key.shape[2:3]:
        raise ValueError(f"a sparse pattern needs as many keys {tuple(key.shape)} as queries {tuple(query.shape)}")
    if key_mask is not None and key_mask.ndim == 4 and key_mask.shape[2] != 1:
        raise ValueError(f"key_mask has shape {tuple(key_mask.shape)}, but must hide keys from all queries alike")
    inputs = prepare_inputs(
        query, key, value, mask=key_mask, bias=None, is_causal=False, window=None, alignment="last", scale=None
    )
    query, key, value = inputs.query, inputs.key, inputs.value
    attend = partial(attention, dropout_p=dropout_p, backend=backend)
    num_tokens = query.shape[2]
    num_global = min(num_global, num_tokens)
    if num_global == num_tokens:
        return attend(query, key, value, mask=key_mask)
    pattern = local_pattern(
        num_tokens,
        window=window,
        dilation=dilation,
        num_global=num_global,
        num_random=num_random,
        random_block_size=block_size,
        seed=seed,
        device=query.device,
    )
    output = block_sparse_attention(
        query,
        key,
        value,
        pattern,
        key_mask=key_mask,
        attend=lambda query, key, value, mask: attend(query, key, value, mask=mask),
    )
    if num_global == 0:
        return output
    everything = attend(query[:, :, :num_global], key, value, mask=key_mask)
    return torch.cat([everything, output[:, :, num_global:]], 2)


def sparse_mask(
    num_tokens: int,
    *,
    window: int,
    dilation: int = 1,
    num_global: int = 0,
    num_random: int = 0,
    block_size: int = 64,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return what :func:`sparse_attention` looks at, as a mask.

    Returns:
        (1, 1, num_tokens, num_tokens)

    >>> sparse_mask(4, window=0, num_global=1)[0, 0].int().tolist()
    [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
    """
    check_pattern(
        window=window,
        dilation=dilation,
        num_global=num_global,
        num_random=num_random,
        block_size=block_size,
        seed=seed,
    )
    return unite_masks(
        dilated_mask(num_tokens, window=window, dilation=dilation, device=device),
        global_mask(num_tokens, num_global=num_global, device=device),
        random_mask(num_tokens, num_random=num_random, seed=seed, block_size=block_size, device=device),
    )


def check_pattern(
    *,
    window: int,
    dilation: int = 1,
    num_global: int = 0,
    num_random: int = 0,
    block_size: int = 64,
    seed: int = 0,
) -> SparsePattern:
    """Return the options of :func:`sparse_attention` that say who looks at whom, as they are when each is in its range.

    Raises:
        ValueError: One is not.
    """
    check_count("window", window)
    check_positive_int("dilation", dilation)
    check_count("num_global", num_global)
    check_count("num_random", num_random)
    check_positive_int("block_size", block_size)
    check_count("seed", seed)
    if num_random and dilation > 1:
        raise ValueError(f"num_random ({num_random}) goes with dilation 1, not {dilation}")
    return SparsePattern(
        window=window,
        dilation=dilation,
        num_global=num_global,
        num_random=num_random,
        block_size=block_size,
        seed=seed,
    )
