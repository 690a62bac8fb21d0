"""What the Flash kernels share: where a program works, which tiles it visits, and the scores of one tile of pairs.

In every kernel a program owns one block of queries or of keys of one head and walks over the tiles of the other side.
Tiles in which distance may hide a pair, or that reach past the last token, are *edges* and test each pair; in the
tiles between them no pair has to be tested.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
LOG2_E = tl.constexpr(1.4426950408889634)
INFINITY = tl.constexpr(float("inf"))
NAN = tl.constexpr(float("nan"))


class Operand(NamedTuple):
    """A tensor (batch, heads, rows, columns) and its strides, 0 along an axis that it is broadcast on."""

    ptr: Any
    batch_stride: Any
    head_stride: Any
    row_stride: Any
    column_stride: Any


class Matrix(NamedTuple):
    """The rows and columns of an operand that belong to one head."""

    ptr: Any
    row_stride: Any
    column_stride: Any


class Sizes(NamedTuple):
    """Numbers of heads and tokens, and how far queries see; kernels are not compiled anew for other numbers.

    Args:
        num_heads: Heads of a sample.
        query_tokens: Queries of a head.
        key_tokens: Keys of a head.
        offset: Position of query 0 among the keys.
        before: Distance a query sees to lower positions; ``None`` for any.
        after: Distance it sees to higher positions; ``None`` for any.
    """

    num_heads: Any
    query_tokens: Any
    key_tokens: Any
    offset: Any
    before: Any
    after: Any


class Pairs(NamedTuple):
    """What decides the weight of a pair of one head, beside the product of query and key.

    Args:
        mask: uint8 (query_tokens, key_tokens), or ``None``.
        bias: (query_tokens, key_tokens), or ``None``.
        seed: Of dropout, or ``None`` without.
        batch_head: Number of the head among all of all samples.
        scale: What products are multiplied by, at least 0.
        dropout_p: Share of the weights that is dropped.
        sizes: Numbers of tokens, and how far queries see.
    """

    mask: Any
    bias: Any
    seed: Any
    batch_head: Any
    scale: Any
    dropout_p: Any
    sizes: Any


@triton.jit
def locate(tokens, num_heads, BLOCK: tl.constexpr):
    """Return the first token of the program's block, batch, head and the number of the head among all.

    The last three have 64 bits, since they are multiplied by strides. Blocks come last to first: under causality the
    last has the most to do, and starting it first evens out the end.
    """
    num_blocks = tl.cdiv(tokens, BLOCK)
    program = tl.program_id(0)
    batch_head = (program // num_blocks).to(tl.int64)
    first = (num_blocks - 1 - program % num_blocks) * BLOCK
    return first, batch_head // num_heads, batch_head % num_heads, batch_head


@triton.jit
def matrix_of(operand, batch, head):
    """Return the rows and columns of one head; ``None`` of ``None``."""
    if operand is None:
        matrix = None
    else:
        start = operand.ptr + batch * operand.batch_stride + head * operand.head_stride
        matrix = Matrix(start, operand.row_stride, operand.column_stride)
    return matrix


@triton.jit
def pairs_of(mask, bias, seed_ptr, batch, head, batch_head, scale, dropout_p, sizes):
    """Return what decides the weights of one head."""
    seed = None if seed_ptr is None else tl.load(seed_ptr)
    return Pairs(matrix_of(mask, batch, head), matrix_of(bias, batch, head), seed, batch_head, scale, dropout_p, sizes)


@triton.jit
def reach(first, past, end, shift, backward, forward, BLOCK: tl.constexpr):
    """Return where the walk over the other side starts, where its inner part does and ends, and where it ends.

    Token i of [first, past) sees j with ``i + shift - backward <= j <= i + shift + forward`` and ``0 <= j < end``.
    All bounds but the last are multiples of the block; every pair of the inner part is visible.

    Args:
        first: First token of the program's own block.
        past: One past its last.
        end: Tokens of the other side.
        shift: Position of token 0 among those of the other side.
        backward: Distance seen to lower positions; ``None`` for any.
        forward: Distance seen to higher positions; ``None`` for any.
        BLOCK: Tokens per tile of the other side.
    """
    start = 0
    inner_start = 0
    stop = end
    inner_stop = end
    if backward is not None:
        start = tl.maximum(first + shift - backward, 0) // BLOCK * BLOCK
        inner_start = tl.cdiv(tl.maximum(past - 1 + shift - backward, 0), BLOCK) * BLOCK
    if forward is not None:
        stop = tl.maximum(tl.minimum(end, past + shift + forward), 0)
        inner_stop = tl.maximum(tl.minimum(stop, first + shift + forward + 1), 0)
    inner_start = tl.maximum(tl.minimum(inner_start, tl.cdiv(stop, BLOCK) * BLOCK), start)
    inner_stop = tl.maximum(inner_stop // BLOCK * BLOCK, inner_start)
    return start, inner_start, inner_stop, stop


@triton.jit
def load_tile(matrix, start, rows, columns, is_row, NUM_COLUMNS: tl.constexpr):
    """Load rows ``start + rows``; zeros past ``NUM_COLUMNS`` and, unless ``is_row`` is ``None``, in rows it leaves out.

    What is left out is not read, so it may hold anything.
    """
    pointers = matrix.ptr + tl.cast(start, tl.int64) * matrix.row_stride
    pointers += rows.to(tl.int64)[:, None] * matrix.row_stride + columns.to(tl.int64)[None, :] * matrix.column_stride
    is_column = columns[None, :] < NUM_COLUMNS
    if columns.shape[0] > NUM_COLUMNS:
        inside = is_column if is_row is None else is_row[:, None] & is_column
    else:
        inside = None if is_row is None else is_row[:, None]
    return tl.load(pointers) if inside is None else tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def store_tile(matrix, rows, columns, is_row, tile, NUM_COLUMNS: tl.constexpr):
    """Store (rows, columns) where ``is_row`` and the column exists."""
    pointers = matrix.ptr + rows.to(tl.int64)[:, None] * matrix.row_stride
    pointers += columns.to(tl.int64)[None, :] * matrix.column_stride
    tl.store(pointers, tile.to(matrix.ptr.dtype.element_ty), mask=is_row[:, None] & (columns[None, :] < NUM_COLUMNS))


@triton.jit
def multiply(left, right, accumulator):
    """Return ``left @ right + accumulator`` in float32, float32 factors multiplied as such and not as TF32."""
    if IS_INTERPRETED:  # it multiplies the bit patterns of bfloat16
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, accumulator, input_precision="ieee")


@triton.jit
def has_bad_entry(tile):
    """Tell which rows hold NaN or infinity: neither is below infinity."""
    return tl.sum((tl.abs(tile.to(tl.float32)) < INFINITY).to(tl.int32), 1) < tile.shape[1]


@triton.jit
def load_pairs(matrix, queries, keys, inside, IS_EDGE: tl.constexpr):
    """Load a tile of mask or bias; at an edge only what exists."""
    pointers = matrix.ptr + queries.to(tl.int64) * matrix.row_stride + keys.to(tl.int64) * matrix.column_stride
    return tl.load(pointers, mask=inside, other=0) if IS_EDGE else tl.load(pointers)


@triton.jit
def pair_scores(products, key_state, queries, keys, pairs, IS_EDGE: tl.constexpr, IS_BACKWARD: tl.constexpr):
    """Return scores in base 2, -inf at hidden pairs, of a tile in either orientation.

    Args:
        products: Of queries and keys.
        key_state: 0, -inf or NaN for each key, of the shape of ``keys``; ``None`` for 0.
        queries: Numbers of the queries, along one axis of the tile.
        keys: Numbers of the keys, along the other.
        pairs: What else decides the scores.
        IS_EDGE: Whether distance or the end of the tokens may hide pairs of this tile.
        IS_BACKWARD: Hide a bias that is not finite, for the queries that saw it send no gradient; else let it spoil.
    """
    sizes = pairs.sizes
    scores = products * (pairs.scale * LOG2_E)
    if key_state is not None:
        scores += key_state
    if IS_EDGE or pairs.mask is not None or pairs.bias is not None:
        inside = (queries < sizes.query_tokens) & (keys < sizes.key_tokens)
        visible = inside
        if IS_EDGE:
            if sizes.before is not None:
                visible &= keys >= queries + (sizes.offset - sizes.before)
            if sizes.after is not None:
                visible &= keys <= queries + (sizes.offset + sizes.after)
        if pairs.mask is not None:
            visible &= load_pairs(pairs.mask, queries, keys, inside, IS_EDGE) != 0
        if pairs.bias is not None:
            bias = load_pairs(pairs.bias, queries, keys, inside, IS_EDGE).to(tl.float32)
            scores += bias * LOG2_E
            if IS_BACKWARD:
                visible &= tl.abs(bias) < INFINITY
            else:
                visible &= bias != -INFINITY
        scores = tl.where(visible, scores, -INFINITY)
    return scores


@triton.jit
def kept_pairs(queries, keys, pairs):
    """Tell which weights dropout keeps: a hash of seed and the pair's number, the same in every kernel and tile."""
    sizes = pairs.sizes
    pair = (pairs.batch_head * sizes.query_tokens + queries) * sizes.key_tokens + keys
    return tl.rand(pairs.seed, pair) >= pairs.dropout_p


@triton.jit
def shown_keys(state_ptr, keys, key_tokens):
    """Return which keys are loaded, and 0 for them and -inf for those that are hidden or not finite."""
    is_key = tl.load(state_ptr + keys, mask=keys < key_tokens, other=-INFINITY) == 0.0
    return is_key, tl.where(is_key, 0.0, -INFINITY)


@triton.jit
def weights_again(scores, shift):
    """Return ``exp2(scores - shift)``, at most 1: huge scores, rounded unlike in the forward pass, would overflow."""
    return tl.exp2(tl.minimum(scores - shift, 0.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def score_gradient(weights, weight_gradient, delta, queries, keys, pairs):
    """Return the gradient of the scores, and the weights that the values were multiplied by."""
    if pairs.seed is None:
        dropped = weights
    else:
        is_kept = kept_pairs(queries, keys, pairs)
        growth = 1.0 / (1.0 - pairs.dropout_p)
        dropped = tl.where(is_kept, weights * growth, 0.0)
        weight_gradient = tl.where(is_kept, weight_gradient * growth, 0.0)
    return weights * (weight_gradient - delta), dropped
