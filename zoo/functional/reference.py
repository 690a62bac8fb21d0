"""Attention as it is defined, in one readable piece: what every other backend is held against."""

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional.scores import scaled_dot_scores
from zoo.functional.shielding import shield
from zoo.functional.softmax import softmax_dtype, stable_softmax
from zoo.functional.visibility import Visibility


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visibility: Visibility,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Return ``dropout(softmax(scale * query key^T + bias)) value`` over the visible keys.

    Everything is computed in float32 (float64 for float64) and rounded to the dtype of the inputs once, at the end.
    It holds all scores in memory, and can be differentiated any number of times.

    Args:
        query: (batch, heads, query_tokens, head_dim)
        key: (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        visibility: Which keys each query may look at.
        bias: (batch, heads, query_tokens, key_tokens), each axis its size or 1, or ``None``.
        scale: What the products are multiplied by.
        dropout_p: Share of the weights that is dropped, after the softmax.

    Returns:
        (batch, heads, query_tokens, value_dim)
    """
    dtype = softmax_dtype(query.dtype)
    clean = shield(query.to(dtype), key.to(dtype), value.to(dtype), visibility, bias)
    scores = scaled_dot_scores(clean.query, clean.key, scale=scale)
    if clean.bias is not None:
        scores = scores + clean.bias.to(dtype)
    weights = stable_softmax(scores, mask=clean.visibility.dense())
    output = functional.dropout(weights, dropout_p) @ clean.value
    return clean.finish(output).to(query.dtype)


def reference_log_sum_exp(
    query: Tensor, key: Tensor, *, visibility: Visibility, bias: Tensor | None, scale: float, block: int = 256
) -> Tensor:
    """Return ``log sum_j exp(score_ij)`` over the visible keys, -inf where there is none.

    The scores are held for ``block`` queries at a time, so memory grows linearly with the tokens.

    Args:
        query: (batch, heads, query_tokens, head_dim)
        key: (batch, heads, key_tokens, head_dim)
        visibility: Which keys each query may look at.
        bias: (batch, heads, query_tokens, key_tokens), each axis its size or 1, or ``None``.
        scale: What the products are multiplied by.
        block: Queries per step, at least 1.

    Returns:
        (batch, heads, query_tokens) in float32, float64 for float64; without gradient.
    """
    with torch.no_grad():
        dtype = softmax_dtype(query.dtype)
        clean = shield(query.to(dtype), key.to(dtype), key.new_zeros(key.shape, dtype=dtype), visibility, bias)
        mask = clean.visibility.dense()
        sums = []
        for start in range(0, query.shape[2], block):
            rows = slice(start, start + block)
            scores = scaled_dot_scores(clean.query[:, :, rows], clean.key, scale=scale)
            if clean.bias is not None:
                scores = scores + _rows_of(clean.bias, rows).to(dtype)
            sums.append(scores.masked_fill(~_rows_of(mask, rows), -torch.inf).logsumexp(-1))
        return clean.finish(torch.cat(sums, dim=-1)[..., None], blind=-torch.inf)[..., 0]


def _rows_of(pairs: Tensor, rows: slice) -> Tensor:
    return pairs if pairs.shape[2] == 1 else pairs[:, :, rows]
