"""Flash attention backward, the gradient of the queries: each program owns a block of them and walks over the keys."""

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
from zoo.kernels.flash_tiles import Tile, query_gradient_tile
from zoo.kernels.launch import Launch, num_blocks


@triton.jit
def _add_keys(
    gradient,
    query,
    output_gradient,
    shift,
    delta,
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
    """Add ``dS K`` of the tile of keys from ``start``."""
    rows = tl.arange(0, BLOCK_KEYS)
    keys = start + rows
    state = None
    is_key = None
    if state_ptr is not None:
        is_key, key_state = shown_keys(state_ptr, keys, pairs.sizes.key_tokens)
        state = key_state[None, :]
    elif IS_EDGE:
        is_key = keys < pairs.sizes.key_tokens
    key_tile = load_tile(key, start, rows, tl.arange(0, BLOCK_HEAD), is_key, HEAD_DIM)
    value_tile = load_tile(value, start, rows, tl.arange(0, BLOCK_VALUE), is_key, VALUE_DIM)
    products = multiply(query, tl.trans(key_tile), None)
    scores = pair_scores(products, state, queries[:, None], keys[None, :], pairs, IS_EDGE, True)
    weights = weights_again(scores, shift[:, None])
    weight_gradient = multiply(output_gradient, tl.trans(value_tile), None)
    of_scores, _ = score_gradient(weights, weight_gradient, delta[:, None], queries[:, None], keys[None, :], pairs)
    return multiply(of_scores.to(key_tile.dtype), key_tile, gradient)


@triton.jit(do_not_specialize=["sizes"])
def flash_query_gradient_kernel(
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
    query_gradient,  # (batch, heads, query_tokens, head_dim)
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
    """Write the gradient of one block of queries of one head."""
    first, batch, head, batch_head = locate(sizes.query_tokens, sizes.num_heads, BLOCK_QUERIES)
    queries = first + tl.arange(0, BLOCK_QUERIES)
    is_query = queries < sizes.query_tokens
    pairs = pairs_of(mask, bias, seed_ptr, batch, head, batch_head, scale, dropout_p, sizes)
    keys, values = matrix_of(key, batch, head), matrix_of(value, batch, head)
    row_base = batch_head * sizes.query_tokens
    shift = tl.load(shift_ptr + row_base + queries, mask=is_query, other=INFINITY)
    delta = tl.load(delta_ptr + row_base + queries, mask=is_query, other=0.0)
    sends = shift < INFINITY
    columns, value_columns = tl.arange(0, BLOCK_HEAD), tl.arange(0, BLOCK_VALUE)
    query_tile = load_tile(matrix_of(query, batch, head), 0, queries, columns, sends, HEAD_DIM)
    of_output = load_tile(matrix_of(output_gradient, batch, head), 0, queries, value_columns, sends, VALUE_DIM)
    key_end = sizes.key_tokens
    state_base = None
    if state_ptr is not None:
        state_base = state_ptr + batch_head * sizes.key_tokens
    if key_end_ptr is not None:
        key_end = tl.load(key_end_ptr + batch_head)

    past = tl.minimum(first + BLOCK_QUERIES, sizes.query_tokens)
    start, inner_start, inner_stop, stop = reach(
        first, past, key_end, sizes.offset, sizes.before, sizes.after, BLOCK_KEYS
    )
    if mask is not None or bias is not None:  # these are read unchecked in the inner part
        inner_stop = tl.where(past < first + BLOCK_QUERIES, inner_start, inner_stop)
    gradient = tl.zeros((BLOCK_QUERIES, BLOCK_HEAD), tl.float32)
    for part in tl.static_range(3):
        low = start if part == 0 else (inner_start if part == 1 else inner_stop)
        high = inner_start if part == 0 else (inner_stop if part == 1 else stop)
        if part > 0 or sizes.before is not None:
            for tile_start in tl.range(low, high, BLOCK_KEYS):
                gradient = _add_keys(
                    gradient,
                    query_tile,
                    of_output,
                    shift,
                    delta,
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
    store_tile(matrix_of(query_gradient, batch, head), queries, columns, is_query, gradient * scale, HEAD_DIM)


def query_gradient_launch(
    call: FlashCall,
    rows: SavedRows,
    query_gradient: Tensor,
    tile: Tile | None = None,
) -> Launch:
    """Return the launch that fills ``query_gradient``."""
    tile = tile or query_gradient_tile(call.width, call.query.element_size())
    return Launch(
        flash_query_gradient_kernel,
        call.batch * call.heads * num_blocks(call.query_tokens, tile.queries),
        {
            **call.arguments(),
            **rows.arguments(),
            "query_gradient": operand(query_gradient),
            **tile.arguments(),
        },
        call.query.device,
    )
