"""Attention without a softmax, in time and memory linear in the tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional.attention_inputs import check_heads_asked_for, prepare_inputs, without_autocast
from zoo.functional.shielding import shield
from zoo.functional.softmax import softmax_dtype
from zoo.functional.validation import check_positive_int


def positive_features(tensor: Tensor) -> Tensor:
    """Return ``elu(x) + 1``: ``x + 1`` above 0, ``exp(x)`` below.

    >>> positive_features(torch.tensor([2.0, 0.0, -1.0])).tolist()
    [3.0, 1.0, 0.3678794503211975]
    """
    return torch.where(tensor > 0, tensor + 1, tensor.clamp(max=0).exp())


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
    block_size: int = 64,
) -> Tensor:
    """Return ``sum_j w_ij v_j / sum_j w_ij`` with ``w_ij = phi(q_i) . phi(k_j)`` and ``phi(x) = elu(x) + 1``.

    The sums over keys are of products ``phi(k_j) v_j^T``, so no weight is ever computed; under causality they are
    carried from block to block, and only within a block are there weights. Where there is nothing to look at, output
    and gradients are zero, and hidden values reach nothing, as in :func:`zoo.functional.attention.attention`.

    Args:
        query: (batch, heads, query_tokens, head_dim)
        key: (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        key_mask: Boolean (batch, heads, 1, key_tokens), each axis its size or 1; True for keys to look at.
        is_causal: No query looks past its own position; needs as many keys as queries.
        block_size: Tokens per block under causality, at least 1.

    Returns:
        (batch, heads, query_tokens, value_dim), computed in float32 or float64

    Raises:
        ValueError: A shape or dtype is not as described.

    >>> tokens = torch.zeros(1, 1, 2, 4)
    >>> linear_attention(tokens, tokens, torch.tensor([[[[2.0], [4.0]]]]), is_causal=True).flatten().tolist()
    [2.0, 3.0]

    Source:
        Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs: Fast Autoregressive Transformers with Linear
        Attention, ICML 2020, https://arxiv.org/abs/2006.16236
    """
    check_positive_int("block_size", block_size)
    if key_mask is not None and key_mask.ndim == 4 and key_mask.shape[2] != 1:
        raise ValueError(f"key_mask has shape {tuple(key_mask.shape)}, but must hide keys from all queries alike")
    inputs = prepare_inputs(
        query, key, value, mask=key_mask, bias=None, is_causal=is_causal, window=None, alignment="last", scale=None
    )
    if is_causal and query.shape[2] != key.shape[2]:
        raise ValueError(f"is_causal needs as many keys ({key.shape[2]}) as queries ({query.shape[2]})")
    with without_autocast(query):
        dtype = softmax_dtype(inputs.query.dtype)
        query, key, value = (tensor.to(dtype) for tensor in (inputs.query, inputs.key, inputs.value))
        clean = shield(query, key, value, inputs.visibility, None)
        query, key = positive_features(clean.query), positive_features(clean.key)
        if key_mask is not None:
            key = key.masked_fill(~key_mask.mT, 0)
        # A column of ones beside the values makes the last column of the sums the normaliser.
        value = functional.pad(clean.value, (0, 1), value=1.0)
        sums = _causal_sums(query, key, value, block_size) if is_causal else query @ (key.mT @ value)
        total = sums[..., -1:]
        # Features underflow to 0 far below 0; nothing is then known of the order of the weights.
        output = sums[..., :-1] / total.masked_fill(total == 0, 1)
        return clean.finish(output).to(inputs.query.dtype)


def linear_attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    heads: Sequence[int] | None = None,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Return the weights ``w_ij / sum_j w_ij`` that :func:`linear_attention` never computes, for the heads asked for.

    Returns:
        (batch, len(heads), query_tokens, key_tokens) in float32, float64 for float64; without gradient

    >>> linear_attention_weights(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), is_causal=True).tolist()
    [[[[1.0, 0.0], [0.5, 0.5]]]]
    """
    chosen = check_heads_asked_for(heads, query.shape[1])
    with torch.no_grad():
        dtype = softmax_dtype(query.dtype)
        identity = torch.eye(key.shape[2], dtype=dtype, device=key.device).expand(*key.shape[:2], -1, -1)
        weights = linear_attention(query.to(dtype), key.to(dtype), identity, key_mask=key_mask, is_causal=is_causal)
        return weights[:, chosen]


def _causal_sums(query: Tensor, key: Tensor, value: Tensor, block_size: int) -> Tensor:
    """Return ``sum_{j <= i} (q_i . k_j) v_j``."""
    tokens = query.shape[2]
    padding = (0, 0, 0, -tokens % block_size)
    query, key, value = (
        functional.pad(tensor, padding).unflatten(2, (-1, block_size)) for tensor in (query, key, value)
    )
    of_block = key.mT @ value
    before = of_block.cumsum(2) - of_block
    within = (query @ key.mT).tril() @ value
    return (within + query @ before).flatten(2, 3)[:, :, :tokens]
