"""One launch of a kernel, as a value: made without a device, run on one, or only compiled for one."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor


@dataclass(frozen=True)
class Launch:
    """A kernel with all that it is called with.

    Args:
        kernel: The function under ``triton.jit``.
        num_programs: Programs of its one-dimensional grid; with none, nothing is to be done.
        arguments: By name: tensors, strides, numbers, constants, and the compiler's ``num_warps`` and ``num_stages``.
        device: Where the tensors are.
    """

    kernel: Any
    num_programs: int
    arguments: dict[str, Any]
    device: torch.device

    def run(self) -> None:
        """Start the kernel on the device of its tensors, whichever device is current."""
        if self.num_programs == 0:
            return
        with _on(self.device):
            self.kernel[(self.num_programs,)](**self.arguments)


def num_blocks(tokens: int, block: int) -> int:
    """Return how many blocks hold all tokens."""
    return -(-tokens // block)


def padded_width(width: int) -> int:
    """Return the width of a tile with room for ``width`` columns: a power of 2, and at least what matrix units take.

    >>> [padded_width(width) for width in (8, 48, 64, 72)]
    [16, 64, 64, 128]
    """
    return max(16, triton.next_power_of_2(width))


def empty_by_tokens(batch: int, heads: int, tokens: int, width: int, like: Tensor) -> Tensor:
    """Return an empty (batch, heads, tokens, width) in which the heads of a token lie side by side.

    Joining the heads then copies nothing.
    """
    return like.new_empty(batch, tokens, heads, width).transpose(1, 2)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
