"""The sections of a sheet as figures: answer, maps, gates, attention per head."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from zoo.explain.drawing.overlays import enlarge, overlay
from zoo.explain.explanation import Explanation
from zoo.explain.gates import Gate

WIDTH = 14.0
T = TypeVar("T")

MOST_CLASSES, MOST_COLUMNS, MOST_LAYERS = 5, 6, 12
BELOW, ABOVE, ACCENT = "#2b6cb0", "#c2410c", "#1a7f4b"


def draw_answer(explanation: Explanation) -> Figure:
    """Show the image, with the part that the network sees, and its most likely classes."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    picture, bars = figure.subplots(1, 2, width_ratios=[1, 2])
    pixels, placement = enlarge(explanation.pixels, explanation.placement)
    show(picture, pixels, "the image; the frame is what the network sees")
    left, top, right, bottom = placement.box
    picture.add_patch(Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, ec="#f6c945", lw=2.5))
    order = explanation.probabilities.argsort(descending=True).tolist()[:MOST_CLASSES]
    shares = [100 * float(explanation.probabilities[index]) for index in order]
    colours = [ACCENT if index == explanation.class_index else "0.65" for index in order]
    places = bars.barh(range(len(order)), shares, color=colours)
    bars.bar_label(places, labels=[f"{share:.1f} %" for share in shares], padding=4)
    bars.set_yticks(range(len(order)), [explanation.class_names[index] for index in order])
    bars.set(xlim=(0, 112), xlabel="probability (%); green: the class that is explained")
    bars.invert_yaxis()
    bars.spines[["top", "right"]].set_visible(False)
    return figure


def draw_maps(explanation: Explanation) -> Figure:
    """Show every map over the image."""
    maps = list(explanation.heatmaps.values())
    figure, panels = _grid(len(maps), min(len(maps), MOST_COLUMNS), 2.9)
    for axes, heatmap in zip(panels, maps, strict=True):
        laid = overlay(explanation.pixels, explanation.placement, heatmap.values, is_signed=heatmap.is_signed)
        low, high = float(heatmap.values.min()), float(heatmap.values.max())
        show(axes, laid, f"{heatmap.title}\n{low:.3g} to {high:.3g}")
    return figure


def draw_channel_gates(explanation: Explanation) -> Figure | None:
    """Show what each channel is multiplied by, one row per stage; ``None`` without channel gates."""
    gates = [gate for gate in explanation.gates.gates if gate.kind == "channel"]
    if not gates:
        return None
    stages = sorted({gate.stage for gate in gates})
    rows = [choose_evenly([gate for gate in gates if gate.stage == stage], MOST_COLUMNS) for stage in stages]
    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(WIDTH, 2.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, row, stage in zip(grid, rows, stages, strict=True):
        for axes in line[len(row) :]:
            axes.set_axis_off()
        for axes, gate in zip(line, row, strict=False):
            _draw_bars(axes, gate)
        line[0].set_ylabel(f"stage {stage}\nfactor")
    return figure


def _draw_bars(axes: Axes, gate: Gate) -> None:
    values = gate.values.numpy()
    colours = [BELOW if value < 1 else ABOVE for value in values]
    axes.bar(range(len(values)), values - 1, bottom=1, width=1.0, color=colours)
    axes.axhline(1, color="0.2", lw=0.8)
    axes.axhline(float(values.mean()), color="0.2", lw=0.8, ls=":")
    for channel in gate.farthest(2):
        side = "top" if values[channel] < 1 else "bottom"
        axes.annotate(str(channel), (channel, values[channel]), ha="center", va=side, fontsize=7)
    low, high = min(float(values.min()), 0.9), max(float(values.max()), 1.05)
    axes.set_ylim(low - 0.18 * (high - low), high + 0.12 * (high - low))
    short = gate.name.removesuffix(".attention")
    axes.set_title(f"{short}: mean {values.mean():.2f}, from 1 by {gate.mean_distance:.2f}", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def draw_spatial_gates(explanation: Explanation) -> Figure | None:
    """Show what each place is multiplied by, over the image; ``None`` without spatial gates."""
    gates = choose_evenly([gate for gate in explanation.gates.gates if gate.kind == "position"], 2 * MOST_COLUMNS)
    if not gates:
        return None
    figure, panels = _grid(len(gates), MOST_COLUMNS, 2.6)
    for axes, gate in zip(panels, gates, strict=True):
        spread = gate.cells.spread(gate.values, next(iter(explanation.heatmaps.values())).size)
        rows, columns = gate.values.shape
        short = gate.name.removesuffix(".attention")
        title = f"{short} ({rows} x {columns})\nfactor {float(gate.values.min()):.2f} to {float(gate.values.max()):.2f}"
        show(axes, overlay(explanation.pixels, explanation.placement, spread), title)
    return figure


def draw_attention(explanation: Explanation) -> Figure | None:
    """Show where each head of each layer looks; ``None`` without attention over tokens."""
    attention = explanation.attention
    if attention is None:
        return None
    layers = choose_evenly(list(range(len(attention.weights))), MOST_LAYERS)
    heads = choose_evenly(list(range(attention.weights[0].shape[0])), MOST_LAYERS)
    columns = max(len(heads), 4)
    side = min(2.2, (WIDTH - 1) / columns)
    figure = Figure(figsize=(WIDTH, (side + 0.32) * len(layers)), layout="constrained")
    grid = figure.subplots(len(layers), columns, squeeze=False)
    for line, layer in zip(grid, layers, strict=True):
        looked_at = attention.looked_at(layer)
        for axes in line[len(heads) :]:
            axes.set_axis_off()
        for axes, head in zip(line, heads, strict=False):
            laid = overlay(explanation.pixels, explanation.placement, attention.spread(looked_at[head]))
            prefix = 1 - float(looked_at[head].sum())
            title = f"layer {layer + 1}, head {head + 1}"
            title += f"\n{100 * prefix:.0f} % not on places" if attention.layout.num_prefix_tokens else ""
            show(axes, laid, title, size=7)
    return figure


def choose_evenly(values: Sequence[T], count: int) -> list[T]:
    """Return at most ``count`` of the values, evenly spaced, with the first and the last.

    >>> choose_evenly("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if len(values) <= count:
        return list(values)
    return [values[round(position)] for position in np.linspace(0, len(values) - 1, count)]


def _grid(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def show(axes: Axes, pixels: object, title: str, *, size: int = 9) -> None:
    """Show an image under a title, without axes."""
    axes.imshow(pixels, interpolation="antialiased")  # type: ignore[arg-type]
    axes.set_title(title, fontsize=size)
    axes.set_axis_off()
