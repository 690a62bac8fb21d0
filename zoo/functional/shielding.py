"""What hidden entries hold reaches nothing: neither the output of other queries nor any gradient.

A hidden key has weight 0, but ``0 * nan`` is nan, forward and backward. So every backend computes on tensors without
NaN and infinity, and the rows that may look at one become NaN afterwards.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.functional.visibility import Visibility


@dataclass(frozen=True)
class Shielded:
    """Finite tensors in place of those given, and what to write over the output.

    ``blind`` and ``spoilt`` are boolean (batch, heads, query_tokens), each axis its size or 1: queries with nothing to
    look at, and queries that hold or may look at a value that is not finite.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    visibility: Visibility
    blind: Tensor
    spoilt: Tensor

    def finish(self, output: Tensor, *, blind: float = 0.0) -> Tensor:
        """Write ``blind`` over the rows of queries with nothing to look at and NaN over spoilt ones.

        These rows send no gradient back.

        Args:
            output: (batch, heads, query_tokens, head_dim)
            blind: What a row of a query with nothing to look at holds.
        """
        output = output.masked_fill(self.spoilt[..., None], torch.nan)
        return output.masked_fill(self.blind[..., None], blind)


def shield(query: Tensor, key: Tensor, value: Tensor, visibility: Visibility, bias: Tensor | None) -> Shielded:
    """Return finite tensors that give the same attention; a bias of -inf becomes part of the visibility.

    Args:
        query: (batch, heads, query_tokens, head_dim)
        key: (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        visibility: Which keys each query may look at.
        bias: (batch, heads, query_tokens, key_tokens), each axis its size or 1, or ``None``.
    """
    spoilt_pairs = None
    if bias is not None:
        hidden = bias == -torch.inf
        spoilt_pairs = ~bias.isfinite() & ~hidden
        bias = bias.masked_fill(hidden | spoilt_pairs, 0)
        visibility = visibility.intersect(~hidden)
    finite_query, finite_key, finite_value = (_finite_rows(tensor) for tensor in (query, key, value))
    spoilt = ~finite_query | visibility.sees(~(finite_key & finite_value))
    if spoilt_pairs is not None:
        spoilt = spoilt | (spoilt_pairs & visibility.dense()).any(-1)
    return Shielded(
        query=_without(query, ~finite_query),
        key=_without(key, ~finite_key),
        value=_without(value, ~finite_value),
        bias=bias,
        visibility=visibility,
        blind=visibility.blind(),
        spoilt=spoilt,
    )


def _finite_rows(tensor: Tensor) -> Tensor:
    """Tell which vectors hold neither NaN nor infinity: 0 times either is NaN, and no sum of zeros overflows."""
    return (tensor.detach() * 0).sum(-1) == 0


def _without(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor.masked_fill(rows[..., None], 0)
