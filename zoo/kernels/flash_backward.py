"""Flash attention backward: weights made anew from the log-sum-exp, gradients by kernels that own what they write.

With weights P, their gradient dP = dO V^T and ``delta_i = sum_j P_ij dP_ij = dO_i . O_i``, the gradient of the scores
is ``dS = P * (dP - delta)``; then ``dQ = scale dS K``, ``dK = scale dS^T Q``, ``dV = P^T dO``, and that of the bias
is dS summed over the axes it is broadcast on. Nothing is added up across programs, so every run gives the same bits.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from zoo.kernels.flash_bias_gradient import bias_gradient_launch, empty_partial_sums
from zoo.kernels.flash_call import FlashCall, SavedRows, operand
from zoo.kernels.flash_key_gradient import key_gradient_launch
from zoo.kernels.flash_pairs import INFINITY, load_tile, locate, matrix_of
from zoo.kernels.flash_query_gradient import query_gradient_launch
from zoo.kernels.flash_tiles import Tile
from zoo.kernels.launch import Launch, empty_by_tokens, num_blocks, padded_width

_QUERIES_PER_PROGRAM = 64  # two tiles (64, 256) of half precision are 128 registers for each of 128 threads


@triton.jit(do_not_specialize=["num_heads", "query_tokens"])
def flash_row_state_kernel(
    output,  # (batch, heads, query_tokens, value_dim)
    output_gradient,  # (batch, heads, query_tokens, value_dim)
    log_sum_exp_ptr,  # (batch, heads, query_tokens)
    shift_ptr,  # (batch, heads, query_tokens)
    delta_ptr,  # (batch, heads, query_tokens)
    num_heads,
    query_tokens,
    VALUE_DIM: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
):
    """Write for each query ``delta`` and what its scores in base 2 are shifted by.

    A query that sends no gradient, for it saw nothing or something that is not finite, is given delta 0 and shift
    +inf: all its weights become exp2(-inf) = 0.
    """
    first, batch, head, batch_head = locate(query_tokens, num_heads, BLOCK_QUERIES)
    queries = first + tl.arange(0, BLOCK_QUERIES)
    columns = tl.arange(0, BLOCK_VALUE)
    is_query = queries < query_tokens
    rows = batch_head * query_tokens + queries
    log_sum_exp = tl.load(log_sum_exp_ptr + rows, mask=is_query, other=INFINITY)
    sends = tl.abs(log_sum_exp) < INFINITY
    output_tile = load_tile(matrix_of(output, batch, head), 0, queries, columns, sends, VALUE_DIM)
    gradient_tile = load_tile(matrix_of(output_gradient, batch, head), 0, queries, columns, sends, VALUE_DIM)
    delta = tl.sum(output_tile.to(tl.float32) * gradient_tile.to(tl.float32), 1)
    tl.store(delta_ptr + rows, delta, mask=is_query)
    tl.store(shift_ptr + rows, tl.where(sends, log_sum_exp, INFINITY), mask=is_query)


def row_state_launch(
    output: Tensor, output_gradient: Tensor, log_sum_exp: Tensor, shift: Tensor, delta: Tensor
) -> Launch:
    """Return the launch that fills ``shift`` and ``delta``, both (batch, heads, query_tokens)."""
    batch, heads, tokens, value_dim = output.shape
    return Launch(
        flash_row_state_kernel,
        batch * heads * num_blocks(tokens, _QUERIES_PER_PROGRAM),
        {
            "output": operand(output),
            "output_gradient": operand(output_gradient),
            "log_sum_exp_ptr": log_sum_exp,
            "shift_ptr": shift,
            "delta_ptr": delta,
            "num_heads": heads,
            "query_tokens": tokens,
            "VALUE_DIM": value_dim,
            "BLOCK_VALUE": padded_width(value_dim),
            "BLOCK_QUERIES": _QUERIES_PER_PROGRAM,
            "num_warps": 4,
        },
        output.device,
    )


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    query: bool
    key_and_value: bool
    bias: bool


def flash_backward(
    call: FlashCall,
    key_state: Tensor | None,
    key_end: Tensor | None,
    output: Tensor,
    log_sum_exp: Tensor,
    output_gradient: Tensor,
    wanted: Wanted,
    *,
    tile: Tile | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of query, key, value and bias; ``None`` for those not asked for.

    Args:
        call: As in the forward pass.
        key_state: As there.
        key_end: As there.
        output: What the forward pass returned.
        log_sum_exp: What it returned too, in base 2.
        output_gradient: (batch, heads, query_tokens, value_dim), in the dtype of the output; any strides.
        wanted: Which gradients to compute.
        tile: ``None`` for those of :mod:`zoo.kernels.flash_tiles`.
    """
    shift, delta = torch.empty_like(log_sum_exp), torch.empty_like(log_sum_exp)
    row_state_launch(output, output_gradient, log_sum_exp, shift, delta).run()
    rows = SavedRows(key_state, key_end, output_gradient, shift, delta)
    of_query = of_key = of_value = of_bias = None
    head_dim, value_dim = call.query.shape[3], call.value.shape[3]
    if wanted.query:
        of_query = empty_by_tokens(call.batch, call.heads, call.query_tokens, head_dim, call.query)
        query_gradient_launch(call, rows, of_query, tile).run()
    if wanted.key_and_value:
        of_key = empty_by_tokens(call.batch, call.heads, call.key_tokens, head_dim, call.key)
        of_value = empty_by_tokens(call.batch, call.heads, call.key_tokens, value_dim, call.value)
        key_gradient_launch(call, rows, of_key, of_value, tile).run()
    if wanted.bias and call.bias is not None:
        partial = empty_partial_sums(call, tile)
        bias_gradient_launch(call, rows, partial, tile).run()
        over = [0, *(axis + 1 for axis in (2, 3) if call.bias.shape[axis] == 1)]
        of_bias = partial.sum(over).reshape(call.bias.shape).to(call.bias.dtype)
    return of_query, of_key, of_value, of_bias
