"""The small language that scenes of shapes and digits are described in: one scene has one caption.

caption  -> group | group "and" group | "a" thing relation "a" thing
group    -> number thing            of two groups, the larger number is spoken of first
thing    -> colour kind             of two single things, the larger one is spoken of first
number   -> "one" | "two" | "three"
relation -> "left of" | "right of" | "above" | "below"
"""

from typing import NamedTuple

COLOURS = ("red", "green", "blue", "yellow", "purple", "white")
SHAPES = ("circle", "square", "triangle", "cross", "ring", "diamond")
DIGITS = tuple("0123456789")
KINDS = SHAPES + DIGITS
NUMBERS = ("one", "two", "three")
RELATIONS = ("left of", "right of", "above", "below")
NO_GROUP = -1
MAX_WORDS = 8

HELD_OUT = frozenset(
    (COLOURS[number % len(COLOURS)], kind) for kinds in (SHAPES, DIGITS) for number, kind in enumerate(kinds)
)
"""Pairs of colour and kind that no training, validation or test scene holds: each kind lacks one colour."""


class Group(NamedTuple):
    """Things of one colour and kind.

    Args:
        number: 1 to 3.
        colour: One of ``COLOURS``.
        kind: One of ``KINDS``.
    """

    number: int
    colour: str
    kind: str


class CaptionWord(NamedTuple):
    """A word, and the number of the group it speaks of; ``NO_GROUP`` for "and" and relations."""

    text: str
    group: int


def describe_groups(groups: tuple[Group, ...], relation: str | None = None) -> list[CaptionWord]:
    """Return the caption of one or two groups, which stand in the order in which they are spoken of.

    Args:
        groups: One or two.
        relation: Where the first of two single things is, seen from the second; ``None`` for a list of groups.

    >>> circle, digits = Group(1, "red", "circle"), Group(2, "blue", "7")
    >>> " ".join(word.text for word in describe_groups((digits, circle)))
    'two blue 7s and one red circle'
    >>> describe_groups((circle, digits._replace(number=1)), "left of")[2:5]
    [CaptionWord(text='circle', group=0), CaptionWord(text='left', group=-1), CaptionWord(text='of', group=-1)]
    """
    words: list[CaptionWord] = []
    link = relation or "and"
    for number, group in enumerate(groups):
        if number:
            words += [CaptionWord(word, NO_GROUP) for word in link.split()]
        article = "a" if relation else NUMBERS[group.number - 1]
        kind = group.kind if group.number == 1 else _plural(group.kind)
        words += [CaptionWord(word, number) for word in (article, group.colour, kind)]
    return words


def _plural(kind: str) -> str:
    """Return the name of several.

    >>> _plural("cross"), _plural("ring"), _plural("6")
    ('crosses', 'rings', '6s')
    """
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"
