"""Memory of the process: what one training step gives back is what the next one asks for."""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1  # the numbers of malloc.h
_M_MMAP_MAX = -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let the C library keep the memory of freed CPU tensors for the next ones, from now on in this process.

    By default glibc hands large blocks back to the system as soon as they are free, so that every step asks for its
    activations anew and the kernel clears them page by page. The process then holds on to the most it ever needed.

    Returns:
        Whether it took effect: only glibc on Linux is told.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))
