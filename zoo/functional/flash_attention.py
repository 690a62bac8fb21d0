"""Attention by the Flash kernels of this project, as operators that torch can differentiate, trace and count."""

import importlib.util
import math
import os
from typing import Any

import torch
from torch import Tensor

from zoo.functional.visibility import Visibility

MAX_HEAD_DIM = 256
MIN_CAPABILITY = (8, 0)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def why_flash_cannot_run(query: Tensor, value: Tensor) -> str | None:
    """Return what keeps the kernels from running on checked inputs of one dtype, or ``None`` when nothing does."""
    if not _HAS_TRITON:
        return "Triton is not installed"
    if query.dtype not in DTYPES:
        return f"it computes in float16, bfloat16 and float32, and the tensors are {query.dtype}"
    widest = max(query.shape[-1], value.shape[-1])
    if widest > MAX_HEAD_DIM:
        return f"it takes a head_dim up to {MAX_HEAD_DIM}, and this one is {widest}"
    if value.shape[-1] == 0:
        return "the values have no columns"
    device = query.device
    if device.type == "cuda":
        if torch.version.hip is not None:
            return "its tiles are made for NVIDIA's devices"
        capability = torch.cuda.get_device_capability(device)
        if capability < MIN_CAPABILITY:
            return "it takes a device of compute capability 8.0 or newer, and this one has {}.{}".format(*capability)
        return None
    if device.type == "meta" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        return None
    return f"it takes a CUDA device, and the tensors are on {device.type}"


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visibility: Visibility,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Return what :func:`zoo.functional.reference.reference_attention` does, by kernels that never hold the scores.

    Memory grows linearly with the tokens, forward and backward, in every option; keys out of reach of causality, of a
    window or past the last one that the mask shows cost no time. Half precision is multiplied by matrix units and
    added up in float32; float32 is multiplied as such. With ``TRITON_INTERPRET=1`` it runs on a CPU, slowly.

    Args: as those of the reference.
    """
    output, _ = flash_attention_with_log_sum_exp(
        query, key, value, visibility=visibility, bias=bias, scale=scale, dropout_p=dropout_p
    )
    return output


def flash_attention_with_log_sum_exp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visibility: Visibility,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """Return also the log-sum-exp of each query, (batch, heads, query_tokens) in float32 and without gradient.

    It is -inf for a query with nothing to look at, and NaN for one that holds or may look at what is not finite.
    """
    if scale < 0:
        query, scale = -query, -scale
    seed = None
    if dropout_p > 0:
        seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=query.device)
    output, log_sum_exp, _, _ = torch.ops.zoo.flash_attention(
        query,
        key,
        value,
        visibility.mask,
        bias,
        seed,
        scale,
        dropout_p,
        visibility.key_tokens - visibility.query_tokens if visibility.alignment == "last" else 0,
        visibility.window,
        0 if visibility.is_causal else visibility.window,
    )
    return output, log_sum_exp.detach() * math.log(2)


@torch.library.custom_op("zoo::flash_attention", mutates_args=())
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    offset: int,
    reach_before: int | None,
    reach_after: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return output, log-sum-exp in base 2, and states and end of the keys, the last two empty if not needed."""
    from zoo.kernels.flash_call import FlashCall, find_key_states
    from zoo.kernels.flash_forward import flash_forward

    call = FlashCall(query, key, value, mask, bias, seed, scale, dropout_p, offset, reach_before, reach_after)
    key_state, key_end = find_key_states(call)
    output, log_sum_exp = flash_forward(call, key_state, key_end)
    return output, log_sum_exp, _filled(key_state, query), _filled(key_end, query, torch.int32)


FLASH_OPERATOR = torch.ops.zoo.flash_attention
"""What query, key and value go through, for those who count products."""


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None, *options: Any) -> Any:
    batch, heads, query_tokens, _ = query.shape
    reach_before, reach_after = options[-2:]
    is_guarded = not (mask is None and bias is None and reach_before is None and reach_after is None)
    has_end = mask is not None and mask.shape[2] == 1
    return (
        _by_tokens(query, query_tokens, value.shape[3]),
        query.new_empty(batch, heads, query_tokens, dtype=torch.float32),
        query.new_empty((batch, heads, key.shape[2]) if is_guarded else 0, dtype=torch.float32),
        query.new_empty((batch, heads) if has_end else 0, dtype=torch.int32),
    )


@torch.library.custom_op("zoo::flash_attention_backward", mutates_args=())
def _attend_backward(
    output_gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    seed: Tensor | None,
    output: Tensor,
    log_sum_exp: Tensor,
    key_state: Tensor,
    key_end: Tensor,
    scale: float,
    dropout_p: float,
    offset: int,
    reach_before: int | None,
    reach_after: int | None,
    wants_query: bool,
    wants_key_and_value: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of query, key, value and bias; empty ones in place of those not wanted."""
    from zoo.kernels.flash_backward import Wanted, flash_backward
    from zoo.kernels.flash_call import FlashCall

    call = FlashCall(query, key, value, mask, bias, seed, scale, dropout_p, offset, reach_before, reach_after)
    gradients = flash_backward(
        call,
        key_state if call.is_guarded else None,
        key_end if call.mask_of_keys is not None else None,
        output,
        log_sum_exp,
        output_gradient,
        Wanted(wants_query, wants_key_and_value, wants_bias),
    )
    of_query, of_key, of_value, of_bias = (_filled(gradient, query) for gradient in gradients)
    return of_query, of_key, of_value, of_bias


@_attend_backward.register_fake
def _(_: Tensor, query: Tensor, key: Tensor, value: Tensor, __: Any, bias: Tensor | None, *options: Any) -> Any:
    wants_query, wants_key_and_value, wants_bias = options[-3:]
    return (
        _by_tokens(query, query.shape[2], query.shape[3]) if wants_query else _filled(None, query),
        _by_tokens(key, key.shape[2], key.shape[3]) if wants_key_and_value else _filled(None, query),
        _by_tokens(value, value.shape[2], value.shape[3]) if wants_key_and_value else _filled(None, query),
        bias.new_empty(bias.shape) if bias is not None and wants_bias else _filled(None, query),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, mask, bias, seed, *ctx.options = inputs
    ctx.save_for_backward(query, key, value, mask, bias, seed, *output)


def _send_back(ctx: Any, output_gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    query, key, value, mask, bias, seed, output, log_sum_exp, key_state, key_end = ctx.saved_tensors
    wants_query, wants_key, wants_value, _, wants_bias = ctx.needs_input_grad[:5]
    gradients = torch.ops.zoo.flash_attention_backward(
        output_gradient,
        query,
        key,
        value,
        mask,
        bias,
        seed,
        output,
        log_sum_exp,
        key_state,
        key_end,
        *ctx.options,
        wants_query,
        wants_key or wants_value,
        wants_bias,
    )
    of_query, of_key, of_value, of_bias = gradients
    return (
        of_query if wants_query else None,
        of_key if wants_key else None,
        of_value if wants_value else None,
        None,
        of_bias if wants_bias else None,
        *[None] * 6,
    )


_attend.register_autograd(_send_back, setup_context=_save)


def _by_tokens(like: Tensor, tokens: int, width: int) -> Tensor:
    batch, heads = like.shape[:2]
    return like.new_empty(batch, tokens, heads, width).transpose(1, 2)


def _filled(tensor: Tensor | None, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return like.new_empty(0, dtype=dtype) if tensor is None else tensor
