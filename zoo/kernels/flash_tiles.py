"""Sizes of the tiles of the Flash kernels, with the reason for each.

All were chosen by compiling for compute capability 8.0, 9.0 and 10.0, none by timing: in half precision up to width
128 no kernel spills registers, and none takes more than 132 KiB of shared memory. A bias makes the backward kernels of
capability 8.0 spill up to 64 bytes per thread, and float32 beyond width 64 spills more. Nothing is tuned at run time,
so no launch ever writes into buffers in use but to compute.

*Width* is the larger of the padded widths of keys and values; a tile of 64 rows of half precision and width 64 is
8 KiB. A multiprocessor has 64 Ki registers of 32 bits, at most 255 per thread.
"""

from typing import NamedTuple


class Tile(NamedTuple):
    """How one program of a kernel works.

    Args:
        queries: Queries per tile.
        keys: Keys per tile.
        num_warps: Groups of 32 threads per program.
        num_stages: Tiles on their way from memory at once, the one computed on included.
    """

    queries: int
    keys: int
    num_warps: int
    num_stages: int

    def arguments(self) -> dict[str, int]:
        """Return them as a kernel and the compiler call them."""
        return {
            "BLOCK_QUERIES": self.queries,
            "BLOCK_KEYS": self.keys,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }


def forward_tile(width: int, itemsize: int) -> Tile:
    """Return the tile of the forward kernel.

    Args:
        width: Padded columns of keys or values.
        itemsize: Bytes per number.
    """
    if itemsize == 4:
        # The tile of the backward kernels: products of one shape are summed in one order, so that weights made anew
        # add up to 1. Between unlike shapes large scores differed by more than all else that is lost in float32.
        return Tile(32, 32, 8, 1)
    if width <= 32:
        # 128 queries use each loaded key 128 times; accumulator and scores are 96 registers of each of 128 threads.
        return Tile(128, 64, 4, 3)
    if width <= 64:
        # The same on 8 warps: with 4, capability 8.0 runs out of registers by two.
        return Tile(128, 64, 8, 3)
    if width <= 128:
        # Two stages in place of three: 96 KiB, which leaves room for two programs on 228 KiB.
        return Tile(128, 64, 8, 2)
    # An accumulator of 64 by 256 is 64 registers of 256 threads; 128 queries would take twice that.
    return Tile(64, 32, 8, 2)


def query_gradient_tile(width: int, itemsize: int) -> Tile:
    """Return the tile of the kernel of the queries' gradient, which holds scores and their gradient at once.

    Args:
        width: Padded columns of keys or values.
        itemsize: Bytes per number.
    """
    if itemsize == 4:
        # Products of float32 run on ordinary units from registers: three of 32 by 32 pairs leave room in those.
        return Tile(32, 32, 8, 1)
    if width <= 64:
        # Scores and their gradient, 64 by 64 each, are 64 registers of each of 128 threads, the accumulator 32.
        return Tile(64, 64, 4, 2)
    if width <= 128:
        # 8 warps halve what each thread holds of the accumulator.
        return Tile(64, 64, 8, 2)
    # The accumulator of 64 queries would spill on capability 9.0.
    return Tile(32, 32, 8, 1)


def key_gradient_tile(width: int, itemsize: int) -> Tile:
    """Return the tile of the kernel of the keys' and values' gradients, which has two accumulators.

    Args:
        width: Padded columns of keys or values.
        itemsize: Bytes per number.
    """
    if itemsize == 4:
        # As that of the queries' gradient.
        return Tile(32, 32, 8, 1)
    if width <= 32:
        # As that of the queries' gradient, with a second accumulator of half its width.
        return Tile(64, 64, 4, 2)
    if width <= 64:
        # 64 queries would spill on capability 8.0; each thread holds 64 registers of the two accumulators.
        return Tile(32, 64, 4, 2)
    if width <= 128:
        # 8 warps for the same 64 registers of accumulators.
        return Tile(64, 64, 8, 2)
    # Two accumulators of 32 by 256 are 64 registers of each of 256 threads.
    return Tile(32, 32, 8, 1)


def bias_gradient_tile(width: int, itemsize: int) -> Tile:
    """Return the tile of the kernel of the bias's gradient, whose accumulator is a tile of pairs, whatever the width.

    Args:
        width: Padded columns of keys or values.
        itemsize: Bytes per number.
    """
    if itemsize == 4:
        # As that of the queries' gradient.
        return Tile(32, 32, 8, 1)
    # All four operands change from sample to sample, so that more than one stage of them would not fit beyond 64.
    if width <= 64:
        return Tile(64, 64, 4, 2)
    return Tile(64, 64, 8, 1) if width <= 128 else Tile(32, 32, 8, 1)
