"""Scaled dot-product attention: one function, one meaning, several ways to compute it."""

from typing import Any, Literal, Protocol, overload

import torch
from torch import Tensor

from zoo.functional.attention_inputs import AttentionInputs, prepare_inputs, without_autocast
from zoo.functional.flash_attention import (
    flash_attention,
    flash_attention_with_log_sum_exp,
    why_flash_cannot_run,
)
from zoo.functional.masks import Alignment
from zoo.functional.reference import reference_attention, reference_log_sum_exp
from zoo.functional.sdpa import sdpa_attention
from zoo.functional.validation import check_probability
from zoo.functional.visibility import Visibility
from zoo.registry import suggest


class AttentionBackend(Protocol):
    """Computes attention from checked inputs of one dtype."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        visibility: Visibility,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
    ) -> Tensor:
        """Return (batch, heads, query_tokens, value_dim); hidden entries reach nothing, blind rows are zero."""
        ...


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alignment: Alignment = "last",
    scale: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    return_log_sum_exp: Literal[False] = False,
) -> Tensor: ...


@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alignment: Alignment = "last",
    scale: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    return_log_sum_exp: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    alignment: Alignment = "last",
    scale: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    return_log_sum_exp: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return ``dropout(softmax(scale * query key^T + bias)) value``, the softmax over the keys a query may look at.

    A query may look at a key that neither ``mask`` nor a bias of -inf nor ``is_causal`` nor ``window`` hides. With
    nothing to look at, its output and all its gradients are zero. What hidden keys and values hold, NaN and infinity
    included, reaches neither output nor gradients; a query that may look at such a key, or holds one itself, gives NaN
    and sends no gradient. This holds on every backend and in every dtype wherever something may be hidden. Without
    mask, bias, causality and window nothing is hidden, and the fused kernels guard nothing: what NaN and infinity then
    do to outputs and gradients of their head is left to the backend.

    Args:
        query: (batch, heads, query_tokens, head_dim); any strides. Under autocast all three are taken to its dtype,
            else to the widest of theirs, which is that of the output too.
        key: (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        mask: Boolean (batch, heads, query_tokens, key_tokens), each axis its size or 1; True where a query may look.
        bias: Floating point, of such a shape, added to the scores; its gradient has the shape it is given in.
        is_causal: No query looks past its own position.
        window: No query looks further than this many positions to either side, at least 0; ``None`` for any distance.
        alignment: For ``is_causal`` and ``window`` with unequal lengths: "last" puts the last query at the position of
            the last key, "first" the first at the first (which is what torch calls causal).
        scale: ``None`` for ``1 / sqrt(head_dim)``.
        dropout_p: Share of the weights dropped after the softmax, 0 up to 1, the others growing by 1 / (1 - p). It
            acts whenever it is not 0, and is drawn from torch's generator.
        backend: "reference" (the plain formula in float32 or float64), "sdpa" (torch's fused kernels), "flash" (the
            kernels of this project, for CUDA devices), or "auto": flash for half precision where it can run, else
            sdpa. The named ones never fall back.
        return_log_sum_exp: Return also ``log sum_j exp(score_ij)``, (batch, heads, query_tokens), in float32 or
            float64 and without gradient, -inf for a query with nothing to look at;
            :func:`zoo.functional.attention_weights.attention_weights` makes exact weights of it.

    Returns:
        (batch, heads, query_tokens, value_dim)

    Raises:
        ValueError: A shape, dtype or option is not as described, or the backend cannot run here.

    >>> query, key = torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 3, 8)
    >>> value = torch.tensor([3.0, 5.0, float("nan")])[None, None, :, None]
    >>> attention(query, key, value, mask=torch.tensor([True, True, False])[None, None, None]).flatten().tolist()
    [4.0, 4.0]

    Source:
        Vaswani et al.: Attention Is All You Need, NeurIPS 2017, https://arxiv.org/abs/1706.03762
    """
    inputs = prepare_inputs(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        is_causal=is_causal,
        window=window,
        alignment=alignment,
        scale=scale,
    )
    check_probability("dropout_p", dropout_p)
    chosen = _choose_backend(backend, inputs)
    tokens = (inputs.query, inputs.key, inputs.value)
    options: dict[str, Any] = {"visibility": inputs.visibility, "bias": inputs.bias, "scale": inputs.scale}
    with without_autocast(inputs.query):
        if not return_log_sum_exp:
            compute = flash_attention if chosen == "flash" else BACKENDS[chosen]
            return compute(*tokens, **options, dropout_p=dropout_p)
        if chosen == "flash":
            return flash_attention_with_log_sum_exp(*tokens, **options, dropout_p=dropout_p)
        output = BACKENDS[chosen](*tokens, **options, dropout_p=dropout_p)
        return output, reference_log_sum_exp(*tokens[:2], **options)


BACKENDS: dict[str, AttentionBackend] = {"reference": reference_attention, "sdpa": sdpa_attention}
"""Those that run on every device."""


def check_backend(backend: str) -> str:
    """Return ``backend`` when it is the name of one, whether or not it can run here.

    Raises:
        ValueError: It is not.
    """
    known = ["auto", "flash", *BACKENDS]
    if backend not in known:
        raise ValueError(f"unknown backend {backend!r}.{suggest(backend, known)} Known: {', '.join(sorted(known))}")
    return backend


def _choose_backend(backend: str, inputs: AttentionInputs) -> str:
    """Return the name of the backend that computes.

    "auto" is flash for half precision on a CUDA device and torch's fused kernels elsewhere: float32 has no matrix
    units, and our tiles are made for those.
    """
    if check_backend(backend) == "flash":
        reason = why_flash_cannot_run(inputs.query, inputs.value)
        if reason is not None:
            raise ValueError(f"backend 'flash' cannot run: {reason}; use 'sdpa', 'reference' or 'auto'")
    if backend != "auto":
        return backend
    is_suited = inputs.query.is_cuda and inputs.query.dtype in (torch.float16, torch.bfloat16)
    return "flash" if is_suited and why_flash_cannot_run(inputs.query, inputs.value) is None else "sdpa"
