"""What a study varies: a model, an attention or a data set by name, with its options, in one notation for all."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from zoo.serialization import parse_yaml

_NOTATION = re.compile(r"(?P<name>[A-Za-z0-9_]+)(?:\((?P<options>.*)\))?")


@dataclass(frozen=True)
class Choice:
    """One value of an axis of a study.

    Args:
        name: Of the model, attention or data set.
        options: Its arguments.
        models: Titles of the models that an attention is tried with; empty for all. Of other axes always empty.

    >>> Choice("cbam", {"identity_start": True}).title
    'cbam(identity_start=True)'
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The notation that :func:`parse_choice` reads; of a path only the last part, which is the same elsewhere."""
        if not self.options:
            return self.name
        return f"{self.name}({', '.join(f'{key}={_shown(key, value)}' for key, value in self.options.items())})"


def _shown(key: str, value: Any) -> str:
    if key == "root":
        return PurePath(str(value)).name
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown('', item) for item in value)}]"
    return str(value)


def parse_choice(text: str) -> Choice:
    """Read ``name`` or ``name(option=value, ...)``, with values as YAML has them.

    Raises:
        ValueError: The text is written otherwise.

    >>> parse_choice("cbam(reduction_ratio=8, pooling=[mean])")
    Choice(name='cbam', options={'reduction_ratio': 8, 'pooling': ['mean']}, models=())
    """
    match = _NOTATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} must be written as NAME or NAME(option=value, ...)")
    options: dict[str, Any] = {}
    for part in split_outside_brackets(match["options"] or ""):
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier():
            raise ValueError(f"{part.strip()!r} in {text!r} must be written as option=value")
        if key.strip() in options:
            raise ValueError(f"{text!r} gives {key.strip()} twice")
        options[key.strip()] = parse_yaml(value, source=text)
    return Choice(match["name"], options)


def parse_choices(text: str) -> tuple[Choice, ...]:
    """Read choices with commas between them.

    >>> [choice.title for choice in parse_choices("none, se(reduction_ratio=8, min_hidden_channels=4)")]
    ['none', 'se(reduction_ratio=8, min_hidden_channels=4)']
    """
    return tuple(parse_choice(part) for part in split_outside_brackets(text))


def split_outside_brackets(text: str) -> list[str]:
    """Split at the commas that stand in no bracket.

    >>> split_outside_brackets("a, b(c=1, d=[2, 3])")
    ['a', ' b(c=1, d=[2, 3])']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text.strip() else []


def read_choices(axis: str, values: Any) -> tuple[Choice, ...]:
    """Read an axis of a study file: a list whose items are names, or mappings with ``name`` and options.

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(values, list) or not values:
        raise ValueError(f"{axis} ({values!r}) must be a list of at least one name, or of mappings with 'name'")
    return tuple(_read_choice(axis, value) for value in values)


def _read_choice(axis: str, value: Any) -> Choice:
    if isinstance(value, str):
        return parse_choice(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"{axis}: {value!r} must be a name, or a mapping with 'name' and options")
    options = {key: item for key, item in value.items() if key != "name"}
    models: Sequence[str] = ()
    if axis == "attention" and "models" in options:
        models = options.pop("models")
        if not isinstance(models, list) or not models or not all(isinstance(model, str) for model in models):
            raise ValueError(f"attention {value['name']!r}: models ({models!r}) must be a list of models of the study")
    return Choice(value["name"], options, tuple(models))


def check_distinct(axis: str, titles: Sequence[str]) -> None:
    """Raise a ValueError that names what stands twice."""
    for title in titles:
        if list(titles).count(title) > 1:
            raise ValueError(f"{axis}: {title} stands twice")
