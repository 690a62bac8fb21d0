"""The arguments that all Flash kernels share, and the small kernel that looks at the keys first."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from zoo.kernels.flash_pairs import INFINITY, NAN, Operand, Sizes, has_bad_entry, load_tile, locate, matrix_of
from zoo.kernels.launch import Launch, num_blocks, padded_width

_KEYS_PER_PROGRAM = 64  # (64, 256) float32 are 128 numbers for each of 128 threads: what still fits their registers


@dataclass(frozen=True)
class FlashCall:
    """One call of attention, as its kernels see it.

    Args:
        query: (batch, heads, query_tokens, head_dim), float32, float16 or bfloat16; any strides.
        key: (batch, heads, key_tokens, head_dim)
        value: (batch, heads, key_tokens, value_dim)
        mask: Boolean (batch, heads, query_tokens, key_tokens), each axis its size or 1; ``None`` hides nothing.
        bias: Floating point, of such a shape, or ``None``.
        seed: One integer on the device, or ``None`` without dropout.
        scale: What the products are multiplied by, at least 0.
        dropout_p: Share of the weights that is dropped.
        offset: Position of query 0 among the keys.
        reach_before: How far a query sees to lower positions; ``None`` for any distance.
        reach_after: How far it sees to higher ones.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None
    seed: Tensor | None
    scale: float
    dropout_p: float
    offset: int
    reach_before: int | None
    reach_after: int | None

    @property
    def batch(self) -> int:
        """Number of samples."""
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.query.shape[1]

    @property
    def query_tokens(self) -> int:
        """Number of queries of a head."""
        return self.query.shape[2]

    @property
    def key_tokens(self) -> int:
        """Number of keys of a head."""
        return self.key.shape[2]

    @property
    def width(self) -> int:
        """Columns of the widest tile."""
        return max(padded_width(self.query.shape[3]), padded_width(self.value.shape[3]))

    @property
    def is_guarded(self) -> bool:
        """Whether a key may be hidden from a query, so that what it holds must not reach that query."""
        return not (self.mask is None and self.bias is None and self.reach_before is None and self.reach_after is None)

    @property
    def mask_of_keys(self) -> Tensor | None:
        """The mask where it hides a key from all queries of a head alike."""
        return self.mask if self.mask is not None and self.mask.shape[2] == 1 else None

    def widths(self) -> dict[str, int]:
        """Return the widths of queries and values, true and padded."""
        head_dim, value_dim = self.query.shape[3], self.value.shape[3]
        return {
            "HEAD_DIM": head_dim,
            "VALUE_DIM": value_dim,
            "BLOCK_HEAD": padded_width(head_dim),
            "BLOCK_VALUE": padded_width(value_dim),
        }

    def arguments(self) -> dict[str, Any]:
        """Return what forward and backward kernels take alike."""
        longest = max(self.query_tokens, self.key_tokens)
        before, after = (None if far is None else min(far, longest) for far in (self.reach_before, self.reach_after))
        return {
            "query": operand(self.query),
            "key": operand(self.key),
            "value": operand(self.value),
            "mask": None if self.mask is None or self.mask_of_keys is not None else operand(self.mask),
            "bias": None if self.bias is None else operand(self.bias),
            "seed_ptr": self.seed,
            "sizes": Sizes(self.heads, self.query_tokens, self.key_tokens, self.offset, before, after),
            "scale": float(self.scale),
            "dropout_p": float(self.dropout_p),
            **self.widths(),
        }


@dataclass(frozen=True)
class SavedRows:
    """What the backward kernels take beside the call.

    Args:
        key_state: (batch, heads, key_tokens), or ``None``: of :func:`find_key_states`.
        key_end: (batch, heads), or ``None``: of the same.
        output_gradient: (batch, heads, query_tokens, value_dim); any strides.
        shift: (batch, heads, query_tokens): log-sum-exp in base 2, +inf for a query that sends no gradient.
        delta: (batch, heads, query_tokens): the product of output and its gradient.
    """

    key_state: Tensor | None
    key_end: Tensor | None
    output_gradient: Tensor
    shift: Tensor
    delta: Tensor

    def arguments(self) -> dict[str, Any]:
        """Return what the kernels of queries' and keys' gradients take alike."""
        return {
            "state_ptr": self.key_state,
            "key_end_ptr": self.key_end,
            "output_gradient": operand(self.output_gradient),
            "shift_ptr": self.shift,
            "delta_ptr": self.delta,
        }


def operand(tensor: Tensor) -> Operand:
    """Return a tensor as kernels take it: booleans as bytes, and strides of 0 along axes of size 1."""
    tensor = tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
    strides = (0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Operand(tensor, *strides)


@triton.jit(do_not_specialize=["num_heads", "key_tokens"])
def flash_key_state_kernel(
    key,  # (batch, heads, key_tokens, head_dim)
    value,  # (batch, heads, key_tokens, value_dim)
    mask,  # (batch, heads, 1, key_tokens), uint8
    state_ptr,  # (batch, heads, key_tokens)
    past_ptr,  # (batch, heads, blocks)
    num_heads,
    key_tokens,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEAD: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """Write for each key -inf where the mask hides it, else NaN where it or its value is not finite, else 0.

    Added to the scores, this hides the key from all queries or spoils those that may look at it. With a mask, also
    write one past the last visible key of the block, 0 where there is none.
    """
    first, batch, head, batch_head = locate(key_tokens, num_heads, BLOCK_KEYS)
    keys = first + tl.arange(0, BLOCK_KEYS)
    is_key = keys < key_tokens
    key_tile = load_tile(matrix_of(key, batch, head), 0, keys, tl.arange(0, BLOCK_HEAD), is_key, HEAD_DIM)
    value_tile = load_tile(matrix_of(value, batch, head), 0, keys, tl.arange(0, BLOCK_VALUE), is_key, VALUE_DIM)
    state = tl.where(has_bad_entry(key_tile) | has_bad_entry(value_tile), NAN, 0.0)
    if mask is not None:
        row = matrix_of(mask, batch, head)
        is_seen = tl.load(row.ptr + keys.to(tl.int64) * row.column_stride, mask=is_key, other=0) != 0
        state = tl.where(is_seen, state, -INFINITY)
        past = tl.max(tl.where(is_seen, keys + 1, 0), 0)
        tl.store(past_ptr + batch_head * tl.cdiv(key_tokens, BLOCK_KEYS) + first // BLOCK_KEYS, past)
    tl.store(state_ptr + batch_head * key_tokens + keys, state, mask=is_key)


def key_state_launch(call: FlashCall, state: Tensor, past: Tensor | None) -> Launch:
    """Return the launch that fills ``state`` (batch, heads, key_tokens) and ``past`` (batch, heads, blocks)."""
    mask = call.mask_of_keys
    return Launch(
        flash_key_state_kernel,
        call.batch * call.heads * num_blocks(call.key_tokens, _KEYS_PER_PROGRAM),
        {
            "key": operand(call.key),
            "value": operand(call.value),
            "mask": None if mask is None else operand(mask),
            "state_ptr": state,
            "past_ptr": past,
            "num_heads": call.heads,
            "key_tokens": call.key_tokens,
            **call.widths(),
            "BLOCK_KEYS": _KEYS_PER_PROGRAM,
            "num_warps": 4,
        },
        call.key.device,
    )


def find_key_states(call: FlashCall) -> tuple[Tensor | None, Tensor | None]:
    """Return the state of each key, and one past the last visible key of each head; each ``None`` where not needed.

    Returns:
        (batch, heads, key_tokens) in float32, and (batch, heads) in int32.
    """
    if not call.is_guarded:
        return None, None
    shape = (call.batch, call.heads)
    state = call.key.new_empty(*shape, call.key_tokens, dtype=torch.float32)
    if call.mask_of_keys is None:
        key_state_launch(call, state, None).run()
        return state, None
    past = call.key.new_zeros(*shape, max(num_blocks(call.key_tokens, _KEYS_PER_PROGRAM), 1), dtype=torch.int32)
    key_state_launch(call, state, past).run()
    return state, past.amax(-1)
