"""The pictures of a study: accuracy against latency, learning curves, what changes per class and per confusion."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from zoo.comparison.results import StudyResults
from zoo.comparison.study import BASELINE
from zoo.comparison.summary import CellSummary, Summary
from zoo.serialization import write_atomically

MAX_CLASSES_SHOWN = 20
_MARKERS = "osD^vP*X"
_MAX_COLUMNS = 3
_LEGEND_INCHES = 3.2  # of a line with the title of a net


@rc_context({"text.parse_math": False})  # names of classes and nets may hold "$"
def draw_pictures(results: StudyResults, summary: Summary, folder: Path) -> dict[str, Path]:
    """Draw every picture that the study has figures for.

    Returns:
        PNG files in ``folder``, by what they show in words; latency is missing where the cost was not measured.
    """
    drawn: dict[str, Path] = {}
    pictures: dict[str, tuple[str, Callable[[StudyResults, Summary], Figure | None]]] = {
        "Accuracy against latency": ("accuracy_latency", plot_accuracy_against_latency),
        "Validation accuracy per epoch": ("learning_curves", plot_learning_curves),
        "Difference to the plain net per class": ("class_differences", plot_class_differences),
        "Difference to the plain net per confusion": ("confusion_differences", plot_confusion_differences),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for what, (name, plot) in pictures.items():
        figure = plot(results, summary)
        if figure is not None:
            drawn[what] = folder / f"{name}.png"
            write_atomically(drawn[what], FigureCanvasAgg(figure).print_png)
    return drawn


def plot_accuracy_against_latency(_results: StudyResults, summary: Summary) -> Figure | None:
    """Show each net's accuracy with its 95 % interval against its latency, and which nets no other one beats in both.

    Returns:
        One panel per data set; ``None`` where the cost was not measured.
    """
    cells = [cell for cell in summary.cells if cell.cost is not None]
    if not cells:
        return None
    styles = _styles(summary.cells)
    figure, panels = _panels(_distinct(cell.data for cell in cells), 4.6, 3.9)
    for data, axes in panels.items():
        group = [cell for cell in cells if cell.data == data]
        latencies = [float(cell.cost["latency_ms_batch1"]) for cell in group if cell.cost]
        for cell, latency in zip(group, latencies, strict=True):
            interval = cell.top1
            spread = None if interval.low is None or interval.high is None else 50 * (interval.high - interval.low)
            label = f"{cell.model} {cell.attention}"
            axes.errorbar(latency, 100 * interval.mean, yerr=spread, capsize=3, label=label, **styles[_key(cell)])
        front = pareto_front(latencies, [cell.top1.mean for cell in group])
        axes.plot(
            [latencies[i] for i in front], [100 * group[i].top1.mean for i in front], ":", color="0.4", zorder=0,
            label="no net is faster and better",
        )  # fmt: skip
        axes.set(title=_wrap(data), xlabel="latency of one image (ms)", ylabel="test top-1 (%), 95 % interval")
    _legend_below(figure, panels.values())
    return figure


def pareto_front(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Return the positions that none other beats in both cost (low) and value (high), by rising cost.

    >>> pareto_front([1.0, 2.0, 3.0, 4.0], [0.5, 0.7, 0.6, 0.8])
    [0, 1, 3]
    """
    front: list[int] = []
    for position in sorted(range(len(costs)), key=lambda position: (costs[position], -values[position])):
        if not front or values[position] > values[front[-1]]:
            front.append(position)
    return front


def plot_learning_curves(results: StudyResults, summary: Summary) -> Figure | None:
    """Show validation accuracy per epoch, mean over seeds in a band from the lowest to the highest seed."""
    epochs = results.epochs.dropna(subset=["val_top1"])
    if epochs.empty:
        return None
    styles = _styles(summary.cells)
    groups = _distinct((cell.model, cell.data) for cell in summary.cells)
    several = len({data for _, data in groups}) > 1
    titles = {f"{model} @ {data}" if several else model: (model, data) for model, data in groups}
    figure, panels = _panels(list(titles), 4.6, 3.6)
    for title, axes in panels.items():
        for cell in summary.cells:
            if (cell.model, cell.data) != titles[title]:
                continue
            curve = 100 * epochs[epochs["cell"] == cell.cell].pivot(index="epoch", columns="seed", values="val_top1")
            colour = styles[_key(cell)]["color"]
            axes.plot(curve.index, curve.mean(axis=1), color=colour, label=f"{cell.model} {cell.attention}")
            axes.fill_between(curve.index, curve.min(axis=1), curve.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        axes.set(title=_wrap(title), xlabel="epoch", ylabel="validation top-1 (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_below(figure, panels.values())
    return figure


def plot_class_differences(results: StudyResults, summary: Summary) -> Figure | None:
    """Show, for each net with attention, by how many points each class gains on the plain net, mean over seeds."""
    rows = {
        cell.cell: per_class_gain(results, cell, _plain_of(cell, summary))
        for cell in summary.cells
        if cell.comparison is not None
    }
    if not rows:
        return None
    values = 100 * np.stack(list(rows.values()))
    occurring = np.flatnonzero(~np.isnan(values[0]))  # a class may have no test image
    shown = [int(occurring[i]) for i in _largest(np.abs(values[:, occurring]).max(axis=0))]
    values = values[:, shown]
    figure = Figure(figsize=(3.2 + 0.62 * len(shown), 1.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    _heat_map(axes, values, [results.class_names[i] for i in shown], list(rows), "{:+.1f}")
    figure.suptitle("Accuracy per class minus the plain net's (points)", fontsize=11)
    return figure


def per_class_gain(results: StudyResults, cell: CellSummary, plain: CellSummary) -> npt.NDArray[np.float64]:
    """Return the mean over paired seeds of the difference in accuracy, per class; NaN for a class without images."""
    seeds = cell.comparison.seeds if cell.comparison else ()
    gains = []
    for seed in seeds:
        ours, theirs = (_predictions(results, each.cell, seed) == results.labels for each in (cell, plain))
        counts = np.bincount(results.labels, minlength=len(results.class_names)).astype(np.float64)
        counts[counts == 0] = np.nan
        change = np.bincount(results.labels, ours.astype(np.float64) - theirs, minlength=len(results.class_names))
        gains.append(change / counts)
    return np.mean(gains, axis=0)


def plot_confusion_differences(results: StudyResults, summary: Summary) -> Figure | None:
    """Show, for each net with attention, which confusions become more (red) and fewer (blue) than the plain net's."""
    cells = [cell for cell in summary.cells if cell.comparison is not None]
    if not cells:
        return None
    changes = {cell.cell: confusion_change(results, cell, _plain_of(cell, summary)) for cell in cells}
    total = np.sum([np.abs(change) for change in changes.values()], axis=0)
    shown = _largest(total.sum(0) + total.sum(1))
    names = [results.class_names[i] for i in shown]
    side = 2.2 + 0.2 * len(shown)
    figure, panels = _panels(list(changes), side, side + 0.2)
    limit = max(max(float(np.abs(change[np.ix_(shown, shown)]).max()) for change in changes.values()), 1e-9)
    for title, axes in panels.items():
        image = axes.imshow(changes[title][np.ix_(shown, shown)], cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set_title(_wrap(title), fontsize=8)
        axes.grid(False)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_xlabel("answer", fontsize=8)
        axes.set_ylabel("truth", fontsize=8)
    figure.colorbar(image, ax=list(panels.values()), label="images more, mean over seeds", aspect=40)
    return figure


def confusion_change(results: StudyResults, cell: CellSummary, plain: CellSummary) -> npt.NDArray[np.float64]:
    """Return how many images more are confused, (truth, answer), mean over paired seeds; the diagonal is zero."""
    classes = len(results.class_names)
    seeds = cell.comparison.seeds if cell.comparison else ()
    changes = []
    for seed in seeds:
        ours, theirs = (
            np.bincount(
                results.labels.astype(np.int64) * classes + _predictions(results, each.cell, seed),
                minlength=classes * classes,
            ).reshape(classes, classes)
            for each in (cell, plain)
        )
        changes.append((ours - theirs).astype(np.float64))
    change = np.mean(changes, axis=0)
    np.fill_diagonal(change, 0.0)
    return change


def _predictions(results: StudyResults, cell: str, seed: int) -> npt.NDArray[Any]:
    runs = results.runs
    return np.asarray(runs.loc[(runs["cell"] == cell) & (runs["seed"] == seed), "predictions"].iloc[0])


def _plain_of(cell: CellSummary, summary: Summary) -> CellSummary:
    return next(
        other
        for other in summary.cells
        if other.attention == BASELINE and (other.model, other.data) == (cell.model, cell.data)
    )


def _largest(weights: npt.NDArray[np.float64]) -> list[int]:
    """Return the classes to show, in label order: all, or those with the largest weights."""
    order = np.argsort(-np.nan_to_num(weights), kind="stable")[:MAX_CLASSES_SHOWN]
    return sorted(order.tolist())


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _key(cell: CellSummary) -> tuple[str, str]:
    return cell.model, cell.attention


def _styles(cells: Sequence[CellSummary]) -> dict[tuple[str, str], dict[str, Any]]:
    """Give each attention a colour and each model a marker, the same in every picture."""
    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    attention = _distinct(cell.attention for cell in cells)
    models = _distinct(cell.model for cell in cells)
    return {
        (model, gate): {"color": colours[i % len(colours)], "fmt": _MARKERS[j % len(_MARKERS)]}
        for i, gate in enumerate(attention)
        for j, model in enumerate(models)
    }


def _panels(titles: Sequence[str], width: float, height: float) -> tuple[Figure, dict[str, Axes]]:
    rows = math.ceil(len(titles) / _MAX_COLUMNS)
    columns = math.ceil(len(titles) / rows)
    figure = Figure(figsize=(max(width * columns, 6.4), height * rows + 0.8), layout="constrained")
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    panels = dict(zip(titles, grid, strict=False))
    for axes in grid[len(titles) :]:
        axes.set_axis_off()
    for axes in panels.values():
        axes.grid(alpha=0.3)
    return figure, panels


def _wrap(title: str) -> str:
    """Break a title into lines that fit a panel."""
    return "\n".join(textwrap.wrap(title, 38, break_on_hyphens=False))


def _legend_below(figure: Figure, panels: Iterable[Axes]) -> None:
    labelled: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    columns = max(1, int(figure.get_figwidth() / _LEGEND_INCHES))
    figure.legend(list(labelled.values()), list(labelled), loc="outside lower center", ncols=columns, fontsize=8)


def _heat_map(axes: Axes, values: npt.NDArray[Any], columns: list[str], rows: list[str], text: str) -> None:
    limit = max(float(np.nanmax(np.abs(values))), 1e-9)
    axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for (i, j), value in np.ndenumerate(values):
        colour = "white" if abs(value) > 0.6 * limit else "black"
        axes.text(j, i, text.format(value), ha="center", va="center", fontsize=7, color=colour)
    axes.grid(False)
