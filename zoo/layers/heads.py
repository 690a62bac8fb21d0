"""Heads of token attentions: their number, their axes, and tokens that are padding."""

import functools
import warnings

import torch
from torch import Tensor

from zoo.functional.masks import intersect_masks
from zoo.functional.validation import check_positive_int

_NARROW = 32


def check_heads(embed_dim: int, num_heads: int) -> int:
    """Return the width of a head, ``embed_dim / num_heads``; under 32 draws a warning, once for each width.

    Raises:
        ValueError: One of them is no integer of at least 1, or ``num_heads`` does not divide ``embed_dim``.

    >>> check_heads(192, 3)
    64
    >>> check_heads(192, 5)
    Traceback (most recent call last):
    ...
    ValueError: num_heads (5) must divide embed_dim (192)
    """
    check_positive_int("embed_dim", embed_dim)
    check_positive_int("num_heads", num_heads)
    if embed_dim % num_heads:
        raise ValueError(f"num_heads ({num_heads}) must divide embed_dim ({embed_dim})")
    if embed_dim // num_heads < _NARROW:
        _warn_of_narrow_heads(embed_dim // num_heads)
    return embed_dim // num_heads


@functools.cache
def _warn_of_narrow_heads(head_dim: int) -> None:
    warnings.warn(
        f"head_dim ({head_dim}) is under {_NARROW}: matrix units and fused kernels work in tiles of {_NARROW} columns "
        "and more, so narrower heads save no time, and each compares tokens in few dimensions; take fewer heads",
        stacklevel=5,
    )


def split_heads(tokens: Tensor, num_heads: int) -> Tensor:
    """Return a view of (batch, tokens, embed_dim) as (batch, heads, tokens, head_dim)."""
    return tokens.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """Undo :func:`split_heads`.

    >>> tokens = torch.arange(6.0).reshape(1, 1, 6)
    >>> torch.equal(merge_heads(split_heads(tokens, 3)), tokens)
    True
    """
    return heads.transpose(1, 2).flatten(2)


def check_tokens(name: str, tokens: Tensor, width: int, token_mask: Tensor | None) -> None:
    """Check a sequence and the mask that tells its tokens from padding.

    Args:
        name: What the sequence is called.
        tokens: (batch, tokens, width)
        width: What the module was built for.
        token_mask: Boolean (batch, tokens), True for tokens that exist, or ``None``.

    Raises:
        ValueError: A shape or dtype is another.
    """
    if tokens.ndim != 3 or tokens.shape[-1] != width:
        raise ValueError(f"{name} has shape {tuple(tokens.shape)}, but must be (batch, tokens, {width})")
    if token_mask is not None and (token_mask.dtype != torch.bool or token_mask.shape != tokens.shape[:2]):
        raise ValueError(
            f"the mask of {name} ({token_mask.dtype}, shape {tuple(token_mask.shape)}) must be boolean, True for "
            f"tokens that exist, of shape (batch, tokens) {tuple(tokens.shape[:2])}"
        )


def clear_padding(tokens: Tensor, token_mask: Tensor | None) -> Tensor:
    """Set to zero the tokens that do not exist, whatever they hold, and their gradients."""
    return tokens if token_mask is None else tokens.masked_fill(~token_mask[..., None], 0)


def mask_of_keys(token_mask: Tensor | None, mask: Tensor | None = None) -> Tensor | None:
    """Return the mask of tokens as one of keys, (batch, 1, 1, tokens), joined with a mask of pairs if there is one.

    Raises:
        ValueError: ``mask`` is no boolean with four axes.
    """
    if token_mask is None:
        return mask
    keys = token_mask[:, None, None, :]
    return keys if mask is None else intersect_masks(mask, keys)
