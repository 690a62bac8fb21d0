"""Sizes of the tiles of the Flash kernels, with the reason for each."""

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
    return Tile(128, 64, 4 if width < 128 else 8, 2)


def query_gradient_tile(width: int, itemsize: int) -> Tile:
    return Tile(64, 64, 4, 2)


def key_gradient_tile(width: int, itemsize: int) -> Tile:
    return Tile(64, 64, 4, 2)


def bias_gradient_tile(width: int, itemsize: int) -> Tile:
    return Tile(64, 64, 4, 2)
