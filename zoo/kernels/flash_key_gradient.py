"""Flash attention backward, keys and values: each program owns a block of them and walks over the queries."""

import triton
import triton.language as tl
from torch import Tensor

from zoo.kernels.flash_call import FlashCall, SavedRows, operand
from zoo.kernels.flash_pairs import (
    INFINITY,
    load_tile,
    locate,
    matrix_of,
    multiply,
    pair_scores,
    pairs_of,
    reach,
    score_gradient,
    shown_keys,
    store_tile,
    weights_again,
)
from zoo.kernels.flash_tiles import Tile, key_gradient_tile
from zoo.kernels.launch import Launch, num_blocks


@triton.jit
def _add_queries(
    key_gradient,
    value_gradient,
    key,
    value,
    key_state,
    keys,
    start,
    query,
    output_gradient,
    shift_ptr,
    delta_ptr,
    pairs,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEAD: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    IS_EDGE: tl.constexpr,
):
    """Add ``dS^T Q`` and ``P^T dO`` of the tile of queries from ``start``; tiles of pairs lie keys by queries."""
    rows = tl.arange(0, BLOCK_QUERIES)
    queries = start + rows
    state = None
    sends = None
    if IS_EDGE:
        sends = queries < pairs.sizes.query_tokens
        shift = tl.load(shift_ptr + queries, mask=sends, other=INFINITY)
        delta = tl.load(delta_ptr + queries, mask=sends, other=0.0)
    else:
        shift, delta = tl.load(shift_ptr + queries), tl.load(delta_ptr + queries)
    if key_state is not None:
        state = key_state[:, None]
        sends = shift < INFINITY
    query_tile = load_tile(query, start, rows, tl.arange(0, BLOCK_HEAD), sends, HEAD_DIM)
    of_output = load_tile(output_gradient, start, rows, tl.arange(0, BLOCK_VALUE), sends, VALUE_DIM)
    products = multiply(key, tl.trans(query_tile), None)
    scores = pair_scores(products, state, queries[None, :], keys[:, None], pairs, IS_EDGE, True)
    weights = weights_again(scores, shift[None, :])
    weight_gradient = multiply(value, tl.trans(of_output), None)
    of_scores, dropped = score_gradient(
        weights, weight_gradient, delta[None, :], queries[None, :], keys[:, None], pairs
    )
    value_gradient = multiply(dropped.to(value.dtype), of_output, value_gradient)
    key_gradient = multiply(of_scores.to(key.dtype), query_tile, key_gradient)
    return key_gradient, value_gradient


@triton.jit(do_not_specialize=["sizes"])
def flash_key_gradient_kernel(
    query,  # (batch, heads, query_tokens, head_dim)
    key,  # (batch, heads, key_tokens, head_dim)
    value,  # (batch, heads, key_tokens, value_dim)
    mask,  # (batch, heads, query_tokens, key_tokens), uint8
    bias,  # (batch, heads, query_tokens, key_tokens)
    seed_ptr,
    state_ptr,  # (batch, heads, key_tokens)
    key_end_ptr,  # (batch, heads)
    output_gradient,  # (batch, heads, query_tokens, value_dim)
    shift_ptr,  # (batch, heads, query_tokens)
    delta_ptr,  # (batch, heads, query_tokens)
    key_gradient,  # (batch, heads, key_tokens, head_dim)
    value_gradient,  # (batch, heads, key_tokens, value_dim)
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
    """Write the gradients of one block of keys and values of one head."""
    first, batch, head, batch_head = locate(sizes.key_tokens, sizes.num_heads, BLOCK_KEYS)
    keys = first + tl.arange(0, BLOCK_KEYS)
    is_key = keys < sizes.key_tokens
    pairs = pairs_of(mask, bias, seed_ptr, batch, head, batch_head, scale, dropout_p, sizes)
    queries, of_output = matrix_of(query, batch, head), matrix_of(output_gradient, batch, head)
    row_base = batch_head * sizes.query_tokens
    key_state = None
    is_loaded = is_key
    if state_ptr is not None:
        is_loaded, key_state = shown_keys(state_ptr + batch_head * sizes.key_tokens, keys, sizes.key_tokens)
    columns, value_columns = tl.arange(0, BLOCK_HEAD), tl.arange(0, BLOCK_VALUE)
    key_tile = load_tile(matrix_of(key, batch, head), 0, keys, columns, is_loaded, HEAD_DIM)
    value_tile = load_tile(matrix_of(value, batch, head), 0, keys, value_columns, is_loaded, VALUE_DIM)

    past = tl.minimum(first + BLOCK_KEYS, sizes.key_tokens)
    query_end = sizes.query_tokens
    if key_end_ptr is not None:  # a block of hidden keys walks over no query
        query_end = tl.where(first < tl.load(key_end_ptr + batch_head), query_end, 0)
    start, inner_start, inner_stop, stop = reach(
        first, past, query_end, -sizes.offset, sizes.after, sizes.before, BLOCK_QUERIES
    )
    if mask is not None or bias is not None:  # these are read unchecked in the inner part
        inner_stop = tl.where(past < first + BLOCK_KEYS, inner_start, inner_stop)
    of_keys = tl.zeros((BLOCK_KEYS, BLOCK_HEAD), tl.float32)
    of_values = tl.zeros((BLOCK_KEYS, BLOCK_VALUE), tl.float32)
    for part in tl.static_range(3):
        low = start if part == 0 else (inner_start if part == 1 else inner_stop)
        high = inner_start if part == 0 else (inner_stop if part == 1 else stop)
        if part > 0 or sizes.after is not None:
            for tile_start in tl.range(low, high, BLOCK_QUERIES):
                of_keys, of_values = _add_queries(
                    of_keys,
                    of_values,
                    key_tile,
                    value_tile,
                    key_state,
                    keys,
                    tile_start,
                    queries,
                    of_output,
                    shift_ptr + row_base,
                    delta_ptr + row_base,
                    pairs,
                    HEAD_DIM,
                    VALUE_DIM,
                    BLOCK_HEAD,
                    BLOCK_VALUE,
                    BLOCK_QUERIES,
                    part != 1,
                )
    store_tile(matrix_of(key_gradient, batch, head), keys, columns, is_key, of_keys * scale, HEAD_DIM)
    store_tile(matrix_of(value_gradient, batch, head), keys, value_columns, is_key, of_values, VALUE_DIM)


def key_gradient_launch(
    call: FlashCall,
    rows: SavedRows,
    key_gradient: Tensor,
    value_gradient: Tensor,
    tile: Tile | None = None,
) -> Launch:
    """Return the launch that fills ``key_gradient`` and ``value_gradient``."""
    tile = tile or key_gradient_tile(call.width, call.query.element_size())
    return Launch(
        flash_key_gradient_kernel,
        call.batch * call.heads * num_blocks(call.key_tokens, tile.keys),
        {
            **call.arguments(),
            **rows.arguments(),
            "key_gradient": operand(key_gradient),
            "value_gradient": operand(value_gradient),
            **tile.arguments(),
        },
        call.query.device,
    )
