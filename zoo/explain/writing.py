"""The files of an explanation: a sheet, a page and the arrays."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from zoo.explain.explanation import Explanation
from zoo.serialization import write_atomically


def write_explanation(explanation: Explanation, folder: Path | str, stem: str) -> list[Path]:
    """Write ``stem.png``, ``stem.html`` and ``stem.npz`` into a folder.

    The arrays: ``map.METHOD`` in pixels of the network's input, ``gate.MODULE.channel`` and ``gate.MODULE.position``,
    ``attention.MODULE`` (heads, tokens, tokens), ``probabilities``, and ``box``, the part of the image that the input
    shows: left, top, right, bottom in its pixels.

    Returns:
        The files.
    """
    from zoo.explain.drawing.page import format_page
    from zoo.explain.drawing.sheet import draw_sections, draw_sheet

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sections = draw_sections(explanation)
    paths = [folder / f"{stem}.{suffix}" for suffix in ("png", "html", "npz")]
    write_atomically(paths[0], draw_sheet(explanation, sections))
    write_atomically(paths[1], format_page(explanation, sections))
    arrays = explanation_arrays(explanation)
    write_atomically(paths[2], lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    return paths


def explanation_arrays(explanation: Explanation) -> dict[str, Any]:
    """Return the arrays that :func:`write_explanation` stores, by name."""
    arrays: dict[str, Any] = {
        "probabilities": explanation.probabilities.numpy(),
        "box": np.asarray(explanation.placement.box),
    }
    arrays |= {f"map.{name}": heatmap.values.numpy() for name, heatmap in explanation.heatmaps.items()}
    arrays |= {f"gate.{gate.name}.{gate.kind}": gate.values.numpy() for gate in explanation.gates.gates}
    if explanation.attention is not None:
        pairs = zip(explanation.attention.names, explanation.attention.weights, strict=True)
        arrays |= {f"attention.{name}": weights.numpy() for name, weights in pairs}
    return arrays


def file_stem(path: Path | str, taken: set[str]) -> str:
    """Return a name for the files of an image that is not taken yet, and take it.

    >>> taken = set()
    >>> file_stem("a/cat 1.jpg", taken), file_stem("b/cat 1.png", taken)
    ('cat_1', 'cat_1_2')
    """
    stem = re.sub(r"[^\w.-]+", "_", Path(path).stem) or "image"
    name, number = stem, 1
    while name.lower() in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name.lower())
    return name
