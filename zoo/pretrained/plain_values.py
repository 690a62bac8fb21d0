"""Configurations and figures as the plain values a YAML file holds."""

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def to_plain(value: Any, where: str) -> Any:
    """Return dicts, lists, text, numbers, booleans and ``None`` only; raise ValueError for what has no such form."""
    if isinstance(value, enum.Enum):
        return to_plain(value.value, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, where)
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry, f"{where}[{position}]") for position, entry in enumerate(value)]
    if isinstance(value, Path):
        return value.as_posix()
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise ValueError(f"{where} is a {type(value).__name__}; a card holds plain values only")
