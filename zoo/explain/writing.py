"""The files of an explanation: a sheet, a page and the arrays."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.explain.against import Pair
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
    _write_arrays(paths[2], explanation_arrays(explanation))
    return paths


def write_pairs(pairs: Sequence[Pair], folder: Path | str) -> list[Path]:
    """Write what two networks answer: ``against.html`` for all images, and a sheet and the arrays of each.

    The arrays are those of :func:`write_explanation` with ``first.`` and ``second.`` before their names, and
    ``difference.METHOD`` in pixels of the image.

    Returns:
        The files.

    Raises:
        ValueError: There is no pair.
    """
    from zoo.explain.drawing.pair_page import format_pair_page
    from zoo.explain.drawing.pair_sheet import draw_pair_sections, draw_pair_sheet

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [draw_pair_sections(pair) for pair in pairs]
    page = folder / "against.html"
    write_atomically(page, format_pair_page(pairs, drawn))
    written, taken = [page], {"against"}
    for pair, sections in zip(pairs, drawn, strict=True):
        stem = file_stem(pair.title, taken)
        arrays = {f"difference.{method}": pair.difference(method) for method in pair.methods}
        for side, each in (("first", pair.first), ("second", pair.second)):
            arrays |= {f"{side}.{name}": values for name, values in explanation_arrays(each).items()}
        written += [folder / f"{stem}.png", folder / f"{stem}.npz"]
        write_atomically(written[-2], draw_pair_sheet(pair, sections))
        _write_arrays(written[-1], arrays)
    return written


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


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
