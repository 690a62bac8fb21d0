"""Attention whose scores come from a small network instead of a product."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from zoo.functional.attention_inputs import check_heads_asked_for, prepare_inputs, without_autocast
from zoo.functional.scores import additive_scores
from zoo.functional.shielding import shield
from zoo.functional.softmax import softmax_dtype, stable_softmax
from zoo.functional.validation import check_probability


def additive_attention(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, *, mask: Tensor | None = None, dropout_p: float = 0.0
) -> Tensor:
    """Return ``dropout(softmax(v . tanh(q_i + k_j))) value``, the softmax over the keys that ``mask`` shows.

    Masks, rows with nothing to look at and hidden garbage are treated as by
    :func:`zoo.functional.attention.attention`. It holds one number per query, key and column of the head in memory.

    Args:
        query: Projected, (batch, heads, query_tokens, head_dim)
        key: Projected, (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        weight: The vector v of each head, (heads, head_dim).
        mask: Boolean (batch, heads, query_tokens, key_tokens), each axis its size or 1; True where a query may look.
        dropout_p: Share of the weights dropped after the softmax, 0 up to 1.

    Returns:
        (batch, heads, query_tokens, value_dim), computed in float32 or float64

    Raises:
        ValueError: A shape, dtype or option is not as described.

    >>> tokens = torch.zeros(1, 1, 2, 4)
    >>> additive_attention(tokens, tokens, torch.tensor([[[[2.0], [4.0]]]]), torch.ones(1, 4)).flatten().tolist()
    [3.0, 3.0]
    """
    check_probability("dropout_p", dropout_p)
    if weight.shape != (query.shape[1], query.shape[-1]):
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, but must be (heads, head_dim) {(query.shape[1], query.shape[-1])}"
        )
    inputs = prepare_inputs(
        query, key, value, mask=mask, bias=None, is_causal=False, window=None, alignment="last", scale=None
    )
    with without_autocast(query):
        dtype = softmax_dtype(inputs.query.dtype)
        query, key, value = (tensor.to(dtype) for tensor in (inputs.query, inputs.key, inputs.value))
        clean = shield(query, key, value, inputs.visibility, None)
        scores = additive_scores(clean.query, clean.key, weight.to(dtype))
        weights = stable_softmax(scores, mask=clean.visibility.dense())
        output = functional.dropout(weights, dropout_p) @ clean.value
        return clean.finish(output).to(inputs.query.dtype)


def additive_attention_weights(
    query: Tensor, key: Tensor, weight: Tensor, *, heads: Sequence[int] | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return the weights of :func:`additive_attention`, before dropout, for the heads asked for.

    Returns:
        (batch, len(heads), query_tokens, key_tokens) in float32, float64 for float64; without gradient

    >>> additive_attention_weights(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 2, 4), torch.ones(1, 4)).tolist()
    [[[[0.5, 0.5]]]]
    """
    chosen = check_heads_asked_for(heads, query.shape[1])
    with torch.no_grad():
        dtype = softmax_dtype(query.dtype)
        query, key, weight = query[:, chosen].to(dtype), key[:, chosen].to(dtype), weight[chosen]
        mask = mask if mask is None or mask.shape[1] == 1 else mask[:, chosen]
        identity = torch.eye(key.shape[2], dtype=dtype, device=key.device).expand(*key.shape[:2], -1, -1)
        return additive_attention(query, key, identity, weight, mask=mask)
