"""Two networks side by side on one image, as one PNG."""

import math

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zoo.explain.against import Pair
from zoo.explain.drawing.overlays import enlarge, overlay
from zoo.explain.drawing.panels import ABOVE, BELOW, MOST_CLASSES, WIDTH, show
from zoo.explain.drawing.sheet import Section, draw_heading, rasterise, stack
from zoo.explain.explanation import Explanation
from zoo.explain.placement import Placement


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def draw_pair_sections(pair: Pair) -> list[Section]:
    """Draw the answers and the maps of both networks."""
    names = f"Red: {pair.first.network} looks there more; blue: {pair.second.network} does."
    sections = [Section("Answers", "", rasterise(draw_answers(pair)))]
    note = f"Below each title: the smallest and largest value. Last column: the difference of the maps' shares. {names}"
    sections.append(Section("Where they look", note, rasterise(draw_maps(pair))))
    if pair.first.gates.gates or pair.second.gates.gates:
        note = "Mean distance of a stage's factors from 1, over its gates of the kind: 0 changes nothing."
        sections.append(Section("How much the gates do", note, rasterise(draw_gates(pair))))
    return sections


def draw_pair_sheet(pair: Pair, sections: list[Section]) -> bytes:
    """Return the sheet as PNG."""
    parts = [rasterise(draw_heading(headline(pair), "", size=15))]
    for section in sections:
        parts += [rasterise(draw_heading(section.title, section.note)), section.picture]
    return stack(parts)


def headline(pair: Pair) -> str:
    """Say in one line who answers what, and who wins."""
    said = " and ".join(
        f"{each.network} says {answer}" for each, answer in zip((pair.first, pair.second), pair.answers, strict=True)
    )
    if pair.label is None:
        return f"{pair.title}: {said}"
    verdicts = {
        "first": f"{pair.first.network} wins",
        "second": f"{pair.second.network} wins",
        "neither": "both are right" if pair.answers[0] == pair.label else "both are wrong",
    }
    return f"{pair.title}: {said}; it is {pair.label}: {verdicts[pair.winner or 'neither']}"


def draw_answers(pair: Pair) -> Figure:
    """Show the image and what both networks find likely."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    picture, bars = figure.subplots(1, 2, width_ratios=[1, 2])
    show(picture, enlarge(pair.first.pixels, pair.first.placement)[0], "the image")
    shares = [
        dict(zip(each.class_names, each.probabilities.tolist(), strict=True)) for each in (pair.first, pair.second)
    ]
    names = sorted(set(shares[0]) | set(shares[1]), key=lambda name: -max(each.get(name, 0) for each in shares))
    names = names[:MOST_CLASSES]
    for number, (each, colour) in enumerate(zip((pair.first, pair.second), (ABOVE, BELOW), strict=True)):
        values = [100 * shares[number].get(name, 0) for name in names]
        places = bars.barh(np.arange(len(names)) + 0.4 * number, values, 0.38, color=colour, label=each.network)
        bars.bar_label(places, labels=[f"{value:.1f} %" for value in values], padding=4, fontsize=8)
    bars.set_yticks(np.arange(len(names)) + 0.2, names)
    bars.set(xlim=(0, 112), xlabel="probability (%)")
    bars.invert_yaxis()
    bars.spines[["top", "right"]].set_visible(False)
    bars.legend(loc="lower right", fontsize=9)
    return figure


def draw_maps(pair: Pair) -> Figure:
    """Show each map of the first, of the second, and the difference; one row per method."""
    methods = list(dict.fromkeys([*pair.first.heatmaps, *pair.second.heatmaps]))
    figure = Figure(figsize=(WIDTH, 3.0 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), 3, squeeze=False)
    for line, method in zip(grid, methods, strict=True):
        for axes, each in zip(line, (pair.first, pair.second), strict=False):
            if method in each.heatmaps:
                _show_map(axes, each, method)
            else:
                axes.text(0.5, 0.5, f"{each.network}\nhas no such map", ha="center", va="center", color="0.4")
                axes.set_axis_off()
        if method in pair.methods:
            difference = torch.from_numpy(pair.difference(method))
            title = f"difference; agreement {_rank(pair.agreement(method))}"
            whole = _whole(pair.first)
            show(line[2], overlay(pair.first.pixels, whole, difference, is_signed=True), title)
        else:
            line[2].set_axis_off()
    return figure


def draw_gates(pair: Pair) -> Figure:
    """Show how far from 1 the factors are, per stage and kind."""
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("channel", "position"), strict=True):
        stages = sorted({gate.stage for each in (pair.first, pair.second) for gate in each.gates.gates})
        for number, (each, colour) in enumerate(zip((pair.first, pair.second), (ABOVE, BELOW), strict=True)):
            means = [
                _mean([gate.mean_distance for gate in each.gates.gates if (gate.kind, gate.stage) == (kind, stage)])
                for stage in stages
            ]
            axes.bar(np.arange(len(stages)) + 0.4 * number, means, 0.38, color=colour, label=each.network)
        axes.set_xticks(np.arange(len(stages)) + 0.2, [f"stage {stage}" for stage in stages])
        axes.set_title(f"factors per {kind}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(fontsize=9)
    return figure


def _show_map(axes: Axes, each: Explanation, method: str) -> None:
    heatmap = each.heatmaps[method]
    laid = overlay(each.pixels, each.placement, heatmap.values, is_signed=heatmap.is_signed)
    low, high = float(heatmap.values.min()), float(heatmap.values.max())
    show(axes, laid, f"{each.network}: {heatmap.title}\n{low:.3g} to {high:.3g}")


def _whole(explanation: Explanation) -> Placement:
    """Return the placement of a map that has the image's own pixels."""
    height, width = explanation.placement.image_size
    return Placement((0, 0, width, height), (height, width))


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _rank(value: float) -> str:
    return "unknown, one map is even" if math.isnan(value) else f"{value:+.2f}"
