"""One PNG per image: all sections one below the other."""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from zoo.explain.drawing.panels import (
    WIDTH,
    draw_answer,
    draw_attention,
    draw_channel_gates,
    draw_maps,
    draw_spatial_gates,
)
from zoo.explain.drawing.trust_panels import draw_curves, draw_table
from zoo.explain.explanation import Explanation

DPI = 100


class Section(NamedTuple):
    """A part of a sheet.

    Args:
        title: What it shows.
        note: How to read it.
        picture: Its pixels, all sections of one width.
    """

    title: str
    note: str
    picture: Image.Image


_SECTIONS: tuple[tuple[str, str, Callable[[Explanation], Figure | None]], ...] = (
    ("Answer", "", draw_answer),
    (
        "Where it looks",
        "Bright: matters more. Where a map has a sign, red speaks for the class and blue against it. Below each title: "
        "its smallest and largest value.",
        draw_maps,
    ),
    (
        "Channel gates",
        "What each channel is multiplied by: 1 changes nothing, 0 closes it. Dotted: the mean. The numbers name the "
        "channels that differ most from it.",
        draw_channel_gates,
    ),
    (
        "Spatial gates",
        "What each place is multiplied by, bright for the largest factor of that gate, however small the difference.",
        draw_spatial_gates,
    ),
    (
        "Attention per layer and head",
        "How much each place is looked at by the tokens that the classifier reads, each picture scaled by itself.",
        draw_attention,
    ),
)


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def draw_sections(explanation: Explanation) -> list[Section]:
    """Draw what there is to show of an answer, except the table of trust."""
    drawn = [(title, note, draw(explanation)) for title, note, draw in _SECTIONS]
    if explanation.trust is not None:
        drawn.append(("How far to trust this", "", draw_curves(explanation.trust)))
    return [Section(title, note, rasterise(figure)) for title, note, figure in drawn if figure is not None]


def draw_sheet(explanation: Explanation, sections: list[Section]) -> bytes:
    """Return the sheet as PNG: a heading, the sections, and the table of trust."""
    parts = [rasterise(draw_heading(headline(explanation), "", size=17))]
    for section in sections:
        parts += [rasterise(draw_heading(section.title, section.note)), section.picture]
    if explanation.trust is not None:
        parts.append(rasterise(draw_table(explanation)))
    return stack(parts)


def stack(parts: Sequence[Image.Image]) -> bytes:
    """Return images one below the other as PNG."""
    width = max(part.width for part in parts)
    sheet = Image.new("RGB", (width, sum(part.height for part in parts)), "white")
    top = 0
    for part in parts:
        sheet.paste(part, (0, top))
        top += part.height
    return as_png(sheet)


def headline(explanation: Explanation) -> str:
    """Say in one line whose answer to what is explained."""
    share = 100 * float(explanation.probabilities[explanation.class_index])
    if explanation.answer == explanation.class_index:
        said = f"{explanation.class_name} with {share:.1f} %"
    else:
        said = (
            f"{explanation.class_names[explanation.answer]}; explained is {explanation.class_name} with {share:.1f} %"
        )
    return f"{explanation.title}: {explanation.network} says {said}"


def rasterise(figure: Figure) -> Image.Image:
    """Return the pixels of a figure."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def as_png(image: Image.Image) -> bytes:
    """Return an image as the bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def draw_heading(title: str, note: str, *, size: int = 13) -> Figure:
    """Draw the title of a sheet or section, and how to read it."""
    height = 0.5 if not note else 0.68
    figure = Figure(figsize=(WIDTH, height))
    figure.text(0.012, 1 - 0.25 / height, title, fontsize=size, weight="bold", va="center")
    if note:
        figure.text(0.012, 0.06, note, fontsize=9, color="0.3", va="bottom")
    return figure
