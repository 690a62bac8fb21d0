"""Attention by torch's own fused kernels, held to the meaning of the reference."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from zoo.functional.block_sparse import block_sparse_attention, loaded_keys, local_pattern
from zoo.functional.shielding import shield
from zoo.functional.visibility import Visibility

_FEW_TOKENS = 256
"""On a CPU with matrix units, training in bfloat16 takes twice the time of float32 at 65 tokens, less beyond 600."""


def sdpa_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visibility: Visibility,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Return what :func:`zoo.functional.reference.reference_attention` does, through ``scaled_dot_product_attention``.

    A window that hides most keys is computed block by block, in time and memory linear in the tokens. Which of torch's
    kernels runs is torch's choice: with dropout, with a bias that is learned, or with values of another width than
    keys, a CPU has none that avoids holding all scores.

    Args: as those of the reference.
    """
    if visibility.is_full and bias is None:
        return _fused(query, key, value, None, scale=scale, dropout_p=dropout_p)
    clean = shield(query, key, value, visibility, bias)
    if clean.bias is None and _is_sparse(visibility):
        output = _by_blocks(clean.query, clean.key, clean.value, visibility, scale=scale, dropout_p=dropout_p)
    elif clean.bias is None and _is_plainly_causal(visibility):
        output = _fused(clean.query, clean.key, clean.value, None, is_causal=True, scale=scale, dropout_p=dropout_p)
    else:
        # A row without anything to look at is given everything here, and set to zero by `finish`.
        mask = clean.visibility.dense() | clean.blind[..., None]
        if clean.bias is not None:
            mask = torch.where(mask, clean.bias.to(query.dtype), -torch.inf)
        output = _fused(clean.query, clean.key, clean.value, mask, scale=scale, dropout_p=dropout_p)
    return clean.finish(output)


def _is_plainly_causal(visibility: Visibility) -> bool:
    """Whether it is what torch means by causal: the first query beside the first key, and nothing else hidden."""
    is_aligned = visibility.alignment == "first" or visibility.query_tokens == visibility.key_tokens
    return visibility.is_causal and is_aligned and visibility.window is None and visibility.mask is None


def _is_sparse(visibility: Visibility) -> bool:
    if visibility.window is None or visibility.query_tokens != visibility.key_tokens or not visibility.is_mask_of_keys:
        return False
    return 2 * loaded_keys(window=visibility.window, is_causal=visibility.is_causal) < visibility.key_tokens


def _by_blocks(
    query: Tensor, key: Tensor, value: Tensor, visibility: Visibility, *, scale: float, dropout_p: float
) -> Tensor:
    assert visibility.window is not None
    pattern = local_pattern(
        visibility.key_tokens, window=visibility.window, is_causal=visibility.is_causal, device=visibility.device
    )

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return _fused(query, key, value, mask | ~mask.any(-1, keepdim=True), scale=scale, dropout_p=dropout_p)

    return block_sparse_attention(query, key, value, pattern, key_mask=visibility.mask, attend=attend)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scale: float,
    dropout_p: float,
    is_causal: bool = False,
) -> Tensor:
    dtype = query.dtype
    if _is_faster_in_float32(query, key, value):
        query, key, value = query.float(), key.float(), value.float()
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
    with _kernels_for(query, dropout_p):
        output = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale
        )
    return output.to(dtype)


def _is_faster_in_float32(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Tell whether torch's CPU kernel would spend more on a backward pass in half precision than on one in float32."""
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    is_half = query.dtype in (torch.bfloat16, torch.float16)
    return query.device.type == "cpu" and is_half and needs_gradient and key.shape[-2] <= _FEW_TOKENS


def _kernels_for(query: Tensor, dropout_p: float) -> AbstractContextManager[None]:
    # Torch's CUDA flash kernel compares dropout with 8 random bits, so that its keep rate is not the one asked for.
    if dropout_p and query.is_cuda:
        return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return nullcontext()
