"""Flash attention backward, the gradient of the bias: each program owns a tile of it and walks over samples and heads.

A bias shared by samples or heads is summed over them inside the program; one shared by queries or keys is summed over
those of the tile, and what tiles found is added up at the end, always in the same order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from zoo.kernels.flash_call import FlashCall, SavedRows, operand
from zoo.kernels.flash_pairs import (
    INFINITY,
    load_tile,
    matrix_of,
    multiply,
    pair_scores,
    pairs_of,
    score_gradient,
    shown_keys,
    weights_again,
)
from zoo.kernels.flash_tiles import Tile, bias_gradient_tile
from zoo.kernels.launch import Launch, num_blocks

_MIN_PROGRAMS = 1024  # several for each of the at most 148 multiprocessors of today's devices


@triton.jit(do_not_specialize=["sizes", "bias_batch", "bias_heads", "shared_heads", "members", "members_per_program"])
def flash_bias_gradient_kernel(
    query,  # (batch, heads, query_tokens, head_dim)
    key,  # (batch, heads, key_tokens, head_dim)
    value,  # (batch, heads, key_tokens, value_dim)
    mask,  # (batch, heads, query_tokens, key_tokens), uint8
    bias,  # (batch, heads, query_tokens, key_tokens)
    seed_ptr,
    state_ptr,  # (batch, heads, key_tokens)
    output_gradient,  # (batch, heads, query_tokens, value_dim)
    shift_ptr,  # (batch, heads, query_tokens)
    delta_ptr,  # (batch, heads, query_tokens)
    partial_ptr,  # (chunks, bias batch, bias heads, queries or blocks of them, keys or blocks of them)
    sizes,
    scale,
    dropout_p,
    bias_batch,
    bias_heads,
    shared_heads,  # heads of a sample that share one bias
    members,  # pairs of sample and head that share one bias
    members_per_program,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK_HEAD: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    SUM_QUERIES: tl.constexpr,
    SUM_KEYS: tl.constexpr,
):
    """Write the sum of the scores' gradients of one tile of pairs over some of the samples and heads."""
    num_query_blocks = tl.cdiv(sizes.query_tokens, BLOCK_QUERIES)
    num_key_blocks = tl.cdiv(sizes.key_tokens, BLOCK_KEYS)
    program = tl.program_id(0)
    key_block = program % num_key_blocks
    query_block = program // num_key_blocks % num_query_blocks
    plane = (program // num_key_blocks // num_query_blocks).to(tl.int64)  # chunk, bias batch, bias head
    bias_head = plane % bias_heads
    bias_sample = plane // bias_heads % bias_batch
    chunk = plane // bias_heads // bias_batch

    first_query, first_key = query_block * BLOCK_QUERIES, key_block * BLOCK_KEYS
    queries, keys = first_query + tl.arange(0, BLOCK_QUERIES), first_key + tl.arange(0, BLOCK_KEYS)
    is_query, is_key = queries < sizes.query_tokens, keys < sizes.key_tokens
    first_member = chunk * members_per_program
    past_member = tl.minimum(first_member + members_per_program, members)
    if sizes.after is not None:
        is_out_of_reach = first_key > first_query + (BLOCK_QUERIES - 1) + sizes.offset + sizes.after
        past_member = tl.where(is_out_of_reach, first_member, past_member)
    if sizes.before is not None:
        is_out_of_reach = first_key + (BLOCK_KEYS - 1) < first_query + sizes.offset - sizes.before
        past_member = tl.where(is_out_of_reach, first_member, past_member)
    total = tl.zeros((BLOCK_QUERIES, BLOCK_KEYS), tl.float32)
    for member in tl.range(first_member, past_member):
        member_number = tl.cast(member, tl.int64)
        batch, head = bias_sample + member_number // shared_heads, bias_head + member_number % shared_heads
        batch_head = batch * sizes.num_heads + head
        pairs = pairs_of(mask, bias, seed_ptr, batch, head, batch_head, scale, dropout_p, sizes)
        row_base = batch_head * sizes.query_tokens
        shift = tl.load(shift_ptr + row_base + queries, mask=is_query, other=INFINITY)
        delta = tl.load(delta_ptr + row_base + queries, mask=is_query, other=0.0)
        sends = shift < INFINITY
        is_shown, key_state = shown_keys(state_ptr + batch_head * sizes.key_tokens, keys, sizes.key_tokens)
        columns, value_columns = tl.arange(0, BLOCK_HEAD), tl.arange(0, BLOCK_VALUE)
        query_tile = load_tile(matrix_of(query, batch, head), 0, queries, columns, sends, HEAD_DIM)
        key_tile = load_tile(matrix_of(key, batch, head), 0, keys, columns, is_shown, HEAD_DIM)
        products = multiply(query_tile, tl.trans(key_tile), None)
        scores = pair_scores(products, key_state[None, :], queries[:, None], keys[None, :], pairs, True, True)
        of_output = load_tile(matrix_of(output_gradient, batch, head), 0, queries, value_columns, sends, VALUE_DIM)
        value_tile = load_tile(matrix_of(value, batch, head), 0, keys, value_columns, is_shown, VALUE_DIM)
        of_weights = multiply(of_output, tl.trans(value_tile), None)
        weights = weights_again(scores, shift[:, None])
        of_scores, _ = score_gradient(weights, of_weights, delta[:, None], queries[:, None], keys[None, :], pairs)
        total += of_scores

    if SUM_QUERIES and SUM_KEYS:
        target = partial_ptr + (plane * num_query_blocks + query_block) * num_key_blocks + key_block
        tl.store(target, tl.sum(tl.sum(total, 1), 0))
    elif SUM_QUERIES:
        target = partial_ptr + (plane * num_query_blocks + query_block) * sizes.key_tokens
        tl.store(target + keys, tl.sum(total, 0), mask=is_key)
    elif SUM_KEYS:
        target = partial_ptr + plane * sizes.query_tokens * num_key_blocks + key_block
        tl.store(target + queries.to(tl.int64) * num_key_blocks, tl.sum(total, 1), mask=is_query)
    else:
        target = partial_ptr + plane * sizes.query_tokens * sizes.key_tokens
        pointers = target + queries.to(tl.int64)[:, None] * sizes.key_tokens + keys[None, :]
        tl.store(pointers, total, mask=is_query[:, None] & is_key[None, :])


def empty_partial_sums(call: FlashCall, tile: Tile | None = None) -> Tensor:
    """Return room for what the programs find: (chunks, batch, heads, queries or blocks of them, keys or blocks).

    Samples and heads that share a bias are cut into so many chunks that the device is full, whatever the bias's size.
    """
    assert call.bias is not None
    tile = tile or bias_gradient_tile(call.width, call.query.element_size())
    batch, heads, queries, keys = call.bias.shape
    query_blocks, key_blocks = num_blocks(call.query_tokens, tile.queries), num_blocks(call.key_tokens, tile.keys)
    tiles = batch * heads * query_blocks * key_blocks
    members = call.batch * call.heads // max(batch * heads, 1)
    per_program = num_blocks(members, max(1, min(members, _MIN_PROGRAMS // max(tiles, 1))))
    chunks = num_blocks(members, per_program)
    shape = (query_blocks if queries == 1 else queries, key_blocks if keys == 1 else keys)
    return call.bias.new_empty(chunks, batch, heads, *shape, dtype=torch.float32)


def bias_gradient_launch(call: FlashCall, rows: SavedRows, partial: Tensor, tile: Tile | None = None) -> Launch:
    """Return the launch that fills ``partial``, of :func:`empty_partial_sums` with the same tile."""
    assert call.bias is not None
    tile = tile or bias_gradient_tile(call.width, call.query.element_size())
    chunks, batch, heads = partial.shape[:3]
    members = call.batch * call.heads // (batch * heads)
    blocks = num_blocks(call.query_tokens, tile.queries) * num_blocks(call.key_tokens, tile.keys)
    return Launch(
        flash_bias_gradient_kernel,
        chunks * batch * heads * blocks,
        {
            **call.arguments(),
            "state_ptr": rows.key_state,
            "output_gradient": operand(rows.output_gradient),
            "shift_ptr": rows.shift,
            "delta_ptr": rows.delta,
            "partial_ptr": partial,
            "bias_batch": batch,
            "bias_heads": heads,
            "shared_heads": call.heads // heads,
            "members": members,
            "members_per_program": num_blocks(members, chunks),
            "SUM_QUERIES": call.bias.shape[2] == 1,
            "SUM_KEYS": call.bias.shape[3] == 1,
            **tile.arguments(),
        },
        call.query.device,
    )
