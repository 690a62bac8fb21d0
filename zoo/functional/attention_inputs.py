"""What attention is given: checked, brought to one dtype, and with its masks as one visibility."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.functional.masks import ALIGNMENTS
from zoo.functional.validation import check_count, check_flag
from zoo.functional.visibility import Visibility

_AXES = ("batch", "heads", "query_tokens", "key_tokens")


@dataclass(frozen=True)
class AttentionInputs:
    """Query, key, value and bias of one dtype, which keys each query may look at, and the scale of the products."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    visibility: Visibility
    scale: float


def prepare_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    window: int | None,
    alignment: str,
    scale: float | None,
) -> AttentionInputs:
    """Check everything that attention takes, whichever backend computes it.

    Raises:
        ValueError: A shape, dtype, device or option is not what attention takes.
    """
    _check_tokens(query, key, value)
    _check_options(is_causal, window, alignment, scale)
    size = (*query.shape[:3], key.shape[2])
    if mask is not None:
        if mask.dtype != torch.bool:
            hint = "; scores are added with bias=" if mask.is_floating_point() else ""
            raise ValueError(f"mask has dtype {mask.dtype}, but must be boolean, True where a query may look{hint}")
        _check_pairs("mask", mask, size, query.device)
    if bias is not None:
        if not bias.is_floating_point():
            hint = "; booleans are given with mask=" if bias.dtype == torch.bool else ""
            raise ValueError(f"bias has dtype {bias.dtype}, but must be floating point{hint}")
        _check_pairs("bias", bias, size, query.device)
    query, key, value = to_common_dtype(query, key, value)
    visibility = Visibility(size[2], size[3], query.device, mask, is_causal, window, alignment)
    return AttentionInputs(query, key, value, bias, visibility, query.shape[-1] ** -0.5 if scale is None else scale)


def check_heads_asked_for(heads: Sequence[int] | None, num_heads: int) -> list[int]:
    """Return the numbers of the heads whose weights are wanted; ``None`` stands for all.

    Raises:
        ValueError: There is none, or one that does not exist.
    """
    if heads is None:
        return list(range(num_heads))
    wrong = [head for head in heads if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head < num_heads]
    if wrong or not heads:
        raise ValueError(f"heads ({list(heads)!r}) must be one or more numbers from 0 to {num_heads - 1}")
    return list(heads)


def to_common_dtype(*tensors: Tensor) -> Sequence[Tensor]:
    """Bring tensors to the dtype of autocast where it is on, else to the widest of theirs; float64 stays."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    device_type = tensors[0].device.type
    if dtype != torch.float64 and _can_autocast(device_type) and torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
    return [tensor.to(dtype) for tensor in tensors]


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Let dtypes stay as they are inside."""
    device_type = tensor.device.type
    return torch.autocast(device_type, enabled=False) if _can_autocast(device_type) else nullcontext()


def _can_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type)


def _check_tokens(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"query, key and value must have the axes (batch, heads, tokens, head_dim), but are {shapes}")
    if not query.shape[:2] == key.shape[:2] == value.shape[:2]:
        raise ValueError(f"query, key and value must agree in batch and heads, but are {shapes}")
    if key.shape[2] != value.shape[2]:
        raise ValueError(f"there must be a value for each key, but there are {shapes}")
    if query.shape[3] != key.shape[3] or query.shape[3] == 0:
        raise ValueError(f"query and key must agree in head_dim, at least 1, but are {shapes}")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not tensor.is_floating_point():
            raise ValueError(f"{name} has dtype {tensor.dtype}, but must be floating point")
        if tensor.device != query.device:
            raise ValueError(f"{name} is on {tensor.device}, but query on {query.device}")


def _check_options(is_causal: bool, window: int | None, alignment: str, scale: float | None) -> None:
    check_flag("is_causal", is_causal)
    if window is not None:
        check_count("window", window)
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment ({alignment!r}) must be one of {', '.join(ALIGNMENTS)}")
    if alignment != "last" and not is_causal and window is None:
        raise ValueError(f"alignment={alignment!r} has no effect without is_causal or window")
    if scale is None:
        return
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale):
        raise ValueError(f"scale ({scale!r}) must be a finite number")


def _check_pairs(name: str, pairs: Tensor, size: Sequence[int], device: torch.device) -> None:
    """Refuse every shape that fits only by accident, and say what was meant."""
    if pairs.device != device:
        raise ValueError(f"{name} is on {pairs.device}, but query on {device}")
    if pairs.ndim == 4 and all(given in (1, full) for given, full in zip(pairs.shape, size, strict=True)):
        return
    batch, heads, query_tokens, key_tokens = size
    meanings = (
        ((key_tokens,), "(key_tokens,)", "[None, None, None]"),
        ((batch, key_tokens), "(batch, key_tokens)", "[:, None, None]"),
        ((query_tokens, key_tokens), "(query_tokens, key_tokens)", "[None, None]"),
        ((batch, query_tokens, key_tokens), "(batch, query_tokens, key_tokens)", "[:, None]"),
        ((heads, query_tokens, key_tokens), "(heads, query_tokens, key_tokens)", "[None]"),
    )
    meant = [f"{name}{index} for {axes}" for shape, axes, index in meanings if shape == tuple(pairs.shape)]
    expected = f"({', '.join(f'{axis} {length}' for axis, length in zip(_AXES, size, strict=True))})"
    hint = f"; give {' or '.join(meant)}" if meant else ""
    raise ValueError(
        f"{name} has shape {tuple(pairs.shape)}, but must have the axes {expected}, each its size or 1{hint}"
    )
