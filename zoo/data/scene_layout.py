"""What is in a scene and where, drawn by lot: groups, sizes, and places that overlap nowhere."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.data.scene_grammar import COLOURS, DIGITS, HELD_OUT, RELATIONS, SHAPES, Group

NATIVE_SIZE = 48
"""Side of the image that the sizes are written for."""

GROUP_SIDES, LARGE_SIDES, SMALL_SIDES = (9, 11), (15, 18), (9, 11)
"""Smallest and largest side of things that are counted, and of the larger and the smaller of two."""

_DIGIT_SHARE = 1 / 3
_CLEARANCE = 7
"""How many pixels further two things are apart along the axis of their relation than across it, at least."""

_DIRECTIONS = {"left of": (0, 1), "right of": (0, -1), "above": (1, 0), "below": (-1, 0)}
"""Steps down and to the right from the first thing to the second."""

_TRIES = 60


class Thing(NamedTuple):
    """One thing in a scene.

    Args:
        group: Number of its group.
        top: First row, in pixels.
        left: First column.
        side: Rows and columns of its box.
    """

    group: int
    top: int
    left: int
    side: int


class Scene(NamedTuple):
    """What is to be seen.

    Args:
        groups: One or two, in the order in which they are spoken of.
        relation: Where the first of two single things is, seen from the second.
        things: All things, group by group.
    """

    groups: tuple[Group, ...]
    relation: str | None
    things: tuple[Thing, ...]


def draw_scene(generator: np.random.Generator, *, size: int, held_out: bool) -> Scene:
    """Draw a scene.

    Half of the scenes are two things in a relation, a quarter a group of one to three, a quarter two groups.

    Args:
        generator: Source of all draws.
        size: Side of the image in pixels.
        held_out: Whether a pair of colour and kind that other scenes never hold is in it.
    """
    form = generator.random()
    num_groups = 1 if form < 0.25 else 2
    pairs = _draw_pairs(num_groups, generator, held_out=held_out)
    if form >= 0.5:
        relation = RELATIONS[generator.integers(len(RELATIONS))]
        groups = tuple(Group(1, *pair) for pair in pairs)
        return _place(groups, relation, [LARGE_SIDES, SMALL_SIDES], size, generator)
    counts = [int(generator.integers(1, 4))] if num_groups == 1 else _draw_two_counts(generator)
    groups = tuple(Group(count, *pair) for count, pair in zip(counts, pairs, strict=True))
    return _place(groups, None, [GROUP_SIDES] * num_groups, size, generator)


def _draw_two_counts(generator: np.random.Generator) -> list[int]:
    more, fewer = ((2, 1), (3, 1), (3, 2))[generator.integers(3)]
    return [more, fewer]


def _draw_pairs(count: int, generator: np.random.Generator, *, held_out: bool) -> list[tuple[str, str]]:
    """Return different pairs of colour and kind; with ``held_out`` one of them, at a random place, is held out."""
    special = int(generator.integers(count)) if held_out else -1
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        kinds = DIGITS if generator.random() < _DIGIT_SHARE else SHAPES
        pair = (COLOURS[generator.integers(len(COLOURS))], kinds[generator.integers(len(kinds))])
        if (pair in HELD_OUT) == (len(pairs) == special) and pair not in pairs:
            pairs.append(pair)
    return pairs


def _place(
    groups: tuple[Group, ...],
    relation: str | None,
    sides: Sequence[tuple[int, int]],
    size: int,
    generator: np.random.Generator,
) -> Scene:
    """Give every thing a side and a place of its own, a pixel apart from all others; start again where none is left."""
    scale = size / NATIVE_SIZE
    ranges = [(round(scale * low), round(scale * high)) for low, high in sides]
    while True:
        things: list[Thing] = []
        for number, group in enumerate(groups):
            low, high = ranges[number]
            for _ in range(group.number):
                thing = _find_place(number, int(generator.integers(low, high + 1)), things, size, generator)
                if thing is not None:
                    things.append(thing)
        complete = len(things) == sum(group.number for group in groups)
        if complete and (relation is None or _holds(relation, things[0], things[1], scale)):
            return Scene(groups, relation, tuple(things))


def _find_place(
    group: int, side: int, others: Sequence[Thing], size: int, generator: np.random.Generator
) -> Thing | None:
    for _ in range(_TRIES):
        top, left = generator.integers(0, size - side + 1, size=2).tolist()
        if all(_apart(top, left, side, other) for other in others):
            return Thing(group, top, left, side)
    return None


def _apart(top: int, left: int, side: int, other: Thing) -> bool:
    clear_rows = top > other.top + other.side or other.top > top + side
    return clear_rows or left > other.left + other.side or other.left > left + side


def _holds(relation: str, first: Thing, second: Thing, scale: float) -> bool:
    down = (second.top + second.side / 2) - (first.top + first.side / 2)
    right = (second.left + second.side / 2) - (first.left + first.side / 2)
    down_step, right_step = _DIRECTIONS[relation]
    along = down * down_step + right * right_step
    across = abs(down * right_step) + abs(right * down_step)
    return along >= across + _CLEARANCE * scale
