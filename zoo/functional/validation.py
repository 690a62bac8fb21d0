"""Checks of arguments, shared by everything that takes a width, a kernel size or a switch."""

from collections.abc import Sequence

POOLINGS = ("mean", "max")


def check_positive_int(name: str, value: object) -> int:
    """Return ``value`` when it is an integer of at least 1.

    Raises:
        ValueError: It is anything else: zero, negative, a float (even a whole one), a bool, text.

    >>> check_positive_int("reduction_ratio", 16)
    16
    >>> check_positive_int("reduction_ratio", 0.0625)
    Traceback (most recent call last):
    ...
    ValueError: reduction_ratio (0.0625) must be an integer of at least 1
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} ({value!r}) must be an integer of at least 1")
    return value


def check_count(name: str, value: object) -> int:
    """Return ``value`` when it is an integer of at least 0.

    Raises:
        ValueError: It is negative, a float, a bool or text.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} ({value!r}) must be an integer of at least 0")
    return value


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float when it is a number from 0 up to, but not, 1: a share to drop.

    Raises:
        ValueError: It is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} ({value!r}) must be a number from 0 up to, but not including, 1")
    return float(value)


def check_odd_kernel_size(name: str, value: object) -> int:
    """Return ``value`` when it is a positive odd integer, so that padding keeps the size.

    Raises:
        ValueError: It is even, or no positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value % 2 == 0:
        raise ValueError(f"{name} ({value!r}) must be an odd integer of at least 1")
    return value


def check_flag(name: str, value: object) -> bool:
    """Return ``value`` when it is True or False.

    Raises:
        ValueError: It is anything else; the text "false" would otherwise count as true.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} ({value!r}) must be True or False")
    return value


def check_pooling(pooling: Sequence[str]) -> tuple[str, ...]:
    """Return the pooling branches as a tuple when they are one or more different names of "mean" and "max".

    Raises:
        ValueError: No branch, an unknown one, one given twice, or a bare text in place of a sequence.

    >>> check_pooling(["mean", "max"])
    ('mean', 'max')
    """
    expected = f"must be a list of one or more different names out of {', '.join(POOLINGS)}"
    if isinstance(pooling, str) or not isinstance(pooling, Sequence) or not pooling:
        raise ValueError(f"pooling ({pooling!r}) {expected}")
    if any(branch not in POOLINGS for branch in pooling) or len(set(pooling)) != len(pooling):
        raise ValueError(f"pooling ({list(pooling)!r}) {expected}")
    return tuple(pooling)


def check_feature_map_width(channels: int, expected: int) -> None:
    """Raise when a feature map does not have the number of channels that a module was built for.

    Raises:
        ValueError: The widths differ.
    """
    if channels != expected:
        raise ValueError(f"feature map has {channels} channels, but the attention was built for {expected}")
