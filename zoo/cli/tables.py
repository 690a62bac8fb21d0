"""How the commands show things."""

from collections.abc import Mapping
from typing import Any


def print_tables(*tables: Any) -> None:
    """Print rich tables: as wide as the terminal, and wide enough not to cut anything where there is none."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for table in tables:
        console.print(table, highlight=False)


def format_options(options: Mapping[str, Any]) -> str:
    """Write options as they are given on a command line.

    >>> format_options({"reduction_ratio": 16, "pooling": ["mean", "max"], "root": None})
    "reduction_ratio=16, pooling=['mean', 'max'], root=None"
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())
