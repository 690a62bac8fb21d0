"""Tables of benchmark rows, written into documents between two marks."""

import re
from collections.abc import Sequence
from pathlib import Path


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, the first column to the left and all others to the right.

    >>> print(format_table(["a", "b"], [["x", "1"]]))
    | a | b |
    | :-- | --: |
    | x | 1 |
    """
    lines = [header, [":--"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill_section(document: Path, name: str, content: str) -> None:
    """Write what stands between ``<!-- NAME -->`` and ``<!-- end NAME -->`` in a document anew.

    Raises:
        ValueError: The document has no such marks.
    """
    text = document.read_text(encoding="utf-8")
    document.write_text(with_section(text, name, content), encoding="utf-8")


def with_section(text: str, name: str, content: str) -> str:
    r"""Return a text with its section ``name`` filled.

    >>> with_section("<!-- a -->\nold\n<!-- end a -->", "a", "new")
    '<!-- a -->\nnew\n<!-- end a -->'

    Raises:
        ValueError: The text has no such section.
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"there is no section between '<!-- {name} -->' and '<!-- end {name} -->'")
    return pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)
