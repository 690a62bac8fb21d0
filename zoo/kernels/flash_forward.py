"""Flash attention forward: softmax and weighted sum in one walk over the keys, no score ever in memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from zoo.kernels.flash_call import FlashCall, operand
from zoo.kernels.flash_pairs import (
    INFINITY,
    LOG2_E,
    NAN,
    has_bad_entry,
    kept_pairs,
    load_tile,
    locate,
    matrix_of,
    multiply,
    pair_scores,
    pairs_of,
    reach,
    store_tile,
)
from zoo.kernels.flash_tiles import Tile, forward_tile
from zoo.kernels.launch import Launch, empty_by_tokens, num_blocks


@triton.jit
def _take_in(
    accumulator,  # sum of exp2(s - m) v so far
    running_max,  # m_i
    running_sum,  # l_i
    query,
    queries,
    start,
    key,
    value,
    state_ptr,
    pairs,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEAD: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    IS_EDGE: tl.constexpr,
):
    """Take the tile of keys from ``start`` into the three running values of each query."""
    rows = tl.arange(0, BLOCK_KEYS)
    keys = start + rows
    state = None
    is_key = None
    if state_ptr is not None:
        key_state = tl.load(state_ptr + keys, mask=keys < pairs.sizes.key_tokens, other=-INFINITY)
        is_key = key_state == 0.0
        state = key_state[None, :]
    elif IS_EDGE:
        is_key = keys < pairs.sizes.key_tokens
    key_tile = load_tile(key, start, rows, tl.arange(0, BLOCK_HEAD), is_key, HEAD_DIM)
    products = multiply(query, tl.trans(key_tile), None)
    if state_ptr is None and pairs.mask is None and pairs.bias is None and not IS_EDGE:
        # Nothing to hide: as scale is not negative, one fused multiply-add per score is all it takes.
        scale_log2 = pairs.scale * LOG2_E
        new_max = tl.maximum(running_max, tl.max(products, 1) * scale_log2)
        shift = new_max
        weights = tl.exp2(products * scale_log2 - shift[:, None])
    else:
        scores = pair_scores(products, state, queries[:, None], keys[None, :], pairs, IS_EDGE, False)
        new_max = tl.maximum(running_max, tl.max(scores, 1))
        # Where all is hidden so far, -inf - -inf would be NaN: 0 in its place makes every weight exp2(-inf) = 0.
        shift = tl.where(new_max == -INFINITY, 0.0, new_max)
        weights = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(running_max - shift)
    running_sum = running_sum * rescale + tl.sum(weights, 1)
    if pairs.seed is not None:
        weights = tl.where(kept_pairs(queries[:, None], keys[None, :], pairs), weights, 0.0)
    value_tile = load_tile(value, start, rows, tl.arange(0, BLOCK_VALUE), is_key, VALUE_DIM)
    accumulator = multiply(weights.to(value_tile.dtype), value_tile, accumulator * rescale[:, None])
    return accumulator, new_max, running_sum


@triton.jit(do_not_specialize=["sizes"])
def flash_forward_kernel(
    query,  # (batch, heads, query_tokens, head_dim)
    key,  # (batch, heads, key_tokens, head_dim)
    value,  # (batch, heads, key_tokens, value_dim)
    mask,  # (batch, heads, query_tokens, key_tokens), uint8
    bias,  # (batch, heads, query_tokens, key_tokens)
    seed_ptr,
    state_ptr,  # (batch, heads, key_tokens): 0, -inf or NaN; None where nothing can be hidden
    key_end_ptr,  # (batch, heads): one past the last key that the mask shows
    output,  # (batch, heads, query_tokens, value_dim)
    log_sum_exp_ptr,  # (batch, heads, query_tokens)
    sizes,
    scale,
    dropout_p,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEAD: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """Write output and log-sum-exp of one block of queries of one head."""
    first, batch, head, batch_head = locate(sizes.query_tokens, sizes.num_heads, BLOCK_QUERIES)
    queries = first + tl.arange(0, BLOCK_QUERIES)
    is_query = queries < sizes.query_tokens
    pairs = pairs_of(mask, bias, seed_ptr, batch, head, batch_head, scale, dropout_p, sizes)
    keys, values = matrix_of(key, batch, head), matrix_of(value, batch, head)
    query_tile = load_tile(matrix_of(query, batch, head), 0, queries, tl.arange(0, BLOCK_HEAD), is_query, HEAD_DIM)
    key_end = sizes.key_tokens
    state_base = None
    if state_ptr is not None:
        state_base = state_ptr + batch_head * sizes.key_tokens
        is_bad = has_bad_entry(query_tile)
        query_tile = tl.where(is_bad[:, None], 0.0, query_tile)
    if key_end_ptr is not None:
        key_end = tl.load(key_end_ptr + batch_head)

    past = tl.minimum(first + BLOCK_QUERIES, sizes.query_tokens)
    start, inner_start, inner_stop, stop = reach(
        first, past, key_end, sizes.offset, sizes.before, sizes.after, BLOCK_KEYS
    )
    if mask is not None or bias is not None:  # these are read unchecked in the inner part
        inner_stop = tl.where(past < first + BLOCK_QUERIES, inner_start, inner_stop)
    accumulator = tl.zeros((BLOCK_QUERIES, BLOCK_VALUE), tl.float32)
    running_max = tl.full((BLOCK_QUERIES,), -INFINITY, tl.float32)
    running_sum = tl.zeros((BLOCK_QUERIES,), tl.float32)
    for part in tl.static_range(3):
        low = start if part == 0 else (inner_start if part == 1 else inner_stop)
        high = inner_start if part == 0 else (inner_stop if part == 1 else stop)
        if part > 0 or sizes.before is not None:
            for tile_start in tl.range(low, high, BLOCK_KEYS):
                accumulator, running_max, running_sum = _take_in(
                    accumulator,
                    running_max,
                    running_sum,
                    query_tile,
                    queries,
                    tile_start,
                    keys,
                    values,
                    state_base,
                    pairs,
                    HEAD_DIM,
                    VALUE_DIM,
                    BLOCK_HEAD,
                    BLOCK_VALUE,
                    BLOCK_KEYS,
                    part != 1,
                )

    is_blind = running_sum == 0.0
    divisor = tl.where(is_blind, 1.0, running_sum)
    if state_ptr is not None:
        divisor = tl.where(is_bad & ~is_blind, NAN, divisor)
    log_sum_exp = running_max + tl.log2(divisor)
    tl.store(log_sum_exp_ptr + batch_head * sizes.query_tokens + queries, log_sum_exp, mask=is_query)
    accumulator = accumulator / divisor[:, None]
    if seed_ptr is not None:
        accumulator *= 1.0 / (1.0 - dropout_p)
    store_tile(matrix_of(output, batch, head), queries, tl.arange(0, BLOCK_VALUE), is_query, accumulator, VALUE_DIM)


def forward_launch(
    call: FlashCall,
    key_state: Tensor | None,
    key_end: Tensor | None,
    output: Tensor,
    log_sum_exp: Tensor,
    tile: Tile | None = None,
) -> Launch:
    """Return the launch that fills output and log-sum-exp."""
    tile = tile or forward_tile(call.width, call.query.element_size())
    return Launch(
        flash_forward_kernel,
        call.batch * call.heads * num_blocks(call.query_tokens, tile.queries),
        {
            **call.arguments(),
            "state_ptr": key_state,
            "key_end_ptr": key_end,
            "output": operand(output),
            "log_sum_exp_ptr": log_sum_exp,
            **tile.arguments(),
        },
        call.query.device,
    )


def flash_forward(
    call: FlashCall, key_state: Tensor | None, key_end: Tensor | None, *, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp.

    Args:
        call: What to compute.
        key_state: Of :func:`zoo.kernels.flash_call.find_key_states`.
        key_end: Of the same.
        tile: ``None`` for the one of :mod:`zoo.kernels.flash_tiles`.

    Returns:
        (batch, heads, query_tokens, value_dim) in the dtype of the query, zeros for a query with nothing to look at;
        and ``log2 sum_j exp(score_ij)``, (batch, heads, query_tokens) in float32, -inf for such a query and NaN for
        one that holds or may look at something that is not finite.
    """
    output = empty_by_tokens(call.batch, call.heads, call.query_tokens, call.value.shape[3], call.query)
    log_sum_exp = call.query.new_empty(call.batch, call.heads, call.query_tokens, dtype=torch.float32)
    forward_launch(call, key_state, key_end, output, log_sum_exp, tile).run()
    return output, log_sum_exp
