"""The softmax of attention: in float32 at least, and zero where there is nothing to look at."""

import torch
from torch import Tensor


def softmax_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which weights of inputs of ``dtype`` are computed: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def stable_softmax(scores: Tensor, dim: int = -1, *, mask: Tensor | None = None) -> Tensor:
    """Return ``exp(s - max s) / sum exp(s - max s)`` over the visible entries of ``dim``, 0 at the hidden ones.

    An entry is hidden by ``mask`` or by a score of -inf. Where all are hidden, the result and every gradient are zero:
    such a row is replaced before the exponential, for a repair after it would leave NaN in the backward pass. What a
    hidden score holds, NaN included, reaches neither the result nor a gradient.

    Args:
        scores: Floating point of any shape; half precision is computed in float32 and rounded once, at the end.
        dim: Axis to normalise over.
        mask: Boolean, broadcastable to ``scores``; True where an entry counts.

    Returns:
        Weights, of the shape and dtype of ``scores``.

    >>> stable_softmax(torch.tensor([[0.0, 0.0, float("-inf")], [float("-inf")] * 3])).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    wide = scores.to(softmax_dtype(scores.dtype))
    hidden = wide == -torch.inf if mask is None else (wide == -torch.inf) | ~mask
    empty = hidden.all(dim, keepdim=True)
    weights = wide.masked_fill(hidden, -torch.inf).masked_fill(empty, 0).softmax(dim)
    return weights.masked_fill(hidden, 0).to(scores.dtype)
