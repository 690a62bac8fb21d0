"""Exact attention weights on demand, beside a fast path that never holds them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.functional.attention_inputs import check_heads_asked_for, prepare_inputs, without_autocast
from zoo.functional.masks import Alignment
from zoo.functional.reference import reference_log_sum_exp
from zoo.functional.scores import scaled_dot_scores
from zoo.functional.shielding import shield
from zoo.functional.softmax import softmax_dtype


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    log_sum_exp: Tensor | None = None,
    heads: Sequence[int] | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alignment: Alignment = "last",
    scale: float | None = None,
) -> Tensor:
    """Return ``exp(score_ij - log_sum_exp_i)``: what :func:`zoo.functional.attention.attention` multiplies values by.

    The options are those that attention was called with; dropout is left out, so the visible weights of a query sum
    to 1. Only the heads asked for are computed.

    Args:
        query: (batch, heads, query_tokens, head_dim)
        key: (batch, heads, key_tokens, head_dim)
        log_sum_exp: What ``attention(..., return_log_sum_exp=True)`` returned; computed when ``None``.
        heads: Numbers of the heads wanted, in their order; ``None`` for all.
        mask: As for attention.
        bias: As for attention.
        is_causal: As for attention.
        window: As for attention.
        alignment: As for attention.
        scale: As for attention.

    Returns:
        (batch, len(heads), query_tokens, key_tokens) in float32, float64 for float64; zeros where a query has nothing
        to look at; without gradient.

    Raises:
        ValueError: A shape, dtype or option is not as described, or a head does not exist.

    >>> attention_weights(torch.zeros(1, 2, 2, 8), torch.zeros(1, 2, 2, 8), heads=[1], is_causal=True).tolist()
    [[[[1.0, 0.0], [0.5, 0.5]]]]
    """
    inputs = prepare_inputs(
        query, key, key, mask=mask, bias=bias, is_causal=is_causal, window=window, alignment=alignment, scale=scale
    )
    if log_sum_exp is not None and log_sum_exp.shape != query.shape[:3]:
        raise ValueError(
            f"log_sum_exp has shape {tuple(log_sum_exp.shape)}, but must be (batch, heads, query_tokens) "
            f"{tuple(query.shape[:3])}"
        )
    chosen = check_heads_asked_for(heads, query.shape[1])
    with torch.no_grad(), without_autocast(query):
        dtype = softmax_dtype(inputs.query.dtype)
        query, key = (tensor[:, chosen].to(dtype) for tensor in (inputs.query, inputs.key))
        visibility = inputs.visibility.of_heads(chosen)
        bias = inputs.bias if inputs.bias is None or inputs.bias.shape[1] == 1 else inputs.bias[:, chosen]
        if log_sum_exp is None:
            sums = reference_log_sum_exp(query, key, visibility=visibility, bias=bias, scale=inputs.scale)
        else:
            sums = log_sum_exp[:, chosen].to(dtype)
        clean = shield(query, key, torch.zeros_like(key), visibility, bias)
        scores = scaled_dot_scores(clean.query, clean.key, scale=inputs.scale)
        if clean.bias is not None:
            scores = scores + clean.bias.to(dtype)
        visible = clean.visibility.dense() & ~clean.blind[..., None]
        weights = (scores - sums[..., None]).masked_fill(~visible, -torch.inf).exp()
        return clean.finish(weights)
