"""How far to trust the maps, as curves, a table and sentences."""

import math
import textwrap
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from zoo.explain.drawing.panels import WIDTH
from zoo.explain.explanation import Explanation
from zoo.explain.trust.conclusions import conclude
from zoo.explain.trust.measurement import Trust
from zoo.explain.trust.perturbation import Curves

HEADER = (
    "map",
    "deletion area\n(small is good)",
    "insertion area\n(large is good)",
    "lead",
    "lead, map\nlaid elsewhere",
    "lead,\nby lot",
    "rank agreement\nwith integr. gradients",
    "after the last layer\nwas scrambled",
    "after all layers\nwere scrambled",
)
_LINE = 150


def table_rows(trust: Trust) -> list[list[str]]:
    """Return the cells of the table of maps below :data:`HEADER`."""
    chance = _mean([curves.lead for curves in trust.chance])
    return [
        [
            found.title,
            f"{found.curves.deletion_area:.3f}",
            f"{found.curves.insertion_area:.3f}",
            f"{found.curves.lead:+.3f}",
            f"{_mean([curves.lead for curves in found.moved]):+.3f}",
            f"{chance:+.3f}",
            _rank(found.agreement),
            _rank(found.last_scrambled),
            _rank(found.all_scrambled),
        ]
        for found in trust.maps.values()
    ]


def figures(explanation: Explanation) -> list[str]:
    """Return the measures that belong to no single map, as lines."""
    lines = []
    if explanation.completeness is not None:
        sums = explanation.completeness
        lines.append(
            f"Integrated gradients add up to {sums.attributed:.3f}; the logit differs by {sums.total:.3f} from that of "
            f"an empty image: a gap of {100 * sums.gap:.1f} %."
        )
    for found in explanation.trust.replacements if explanation.trust is not None else ():
        if found.how == "uniform":
            how, then = "evened out", "becomes another one" if found.changes_answer else "stays"
        else:
            how, then = "shuffled", f"changes in {100 * found.changes_answer:.0f} % of the trials"
        lines.append(
            f"Attention {how}: {explanation.class_name} goes from {100 * found.before:.1f} % to "
            f"{100 * found.after:.1f} %, {100 * found.moved:.1f} % of the probability goes to other classes, and the "
            f"answer {then}."
        )
    if explanation.concentrations:
        most = min(explanation.concentrations, key=lambda each: each.entropy)
        mean = _mean([each.entropy for each in explanation.concentrations])
        lines.append(
            f"Evenness of the attention's weights (entropy, 1 is even): {mean:.2f} on average; the least even is "
            f"{most.name} with {most.entropy:.2f}, whose largest weight has {100 * most.largest:.1f} % where even ones "
            f"have {100 / most.num_weights:.1f} %."
        )
    if explanation.gates.unread:
        lines.append(f"Gates that do more than multiply and are not shown: {', '.join(explanation.gates.unread)}.")
    return lines


def draw_curves(trust: Trust) -> Figure:
    """Show the probability while pixels are covered, and while they are shown."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    deletion, insertion = figure.subplots(1, 2, sharey=True)
    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    for (title, curves), colour in zip(_all_curves(trust), [*colours[: len(trust.maps)], "0.5"], strict=True):
        style = {"color": colour, "ls": ":" if title == "by lot" else "-", "label": title}
        deletion.plot([100 * f for f in curves.fractions], [100 * p for p in curves.deletion], **style)
        insertion.plot([100 * f for f in curves.fractions], [100 * p for p in curves.insertion], **style)
    deletion.set(xlabel="pixels covered (%)", ylabel="probability (%)", title="Deletion: the marked places go first")
    insertion.set(xlabel="pixels shown (%)", title="Insertion: the marked places come first")
    for axes in (deletion, insertion):
        axes.grid(alpha=0.3)
        axes.set(xlim=(0, 100), ylim=(-2, 102))
    insertion.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def draw_table(explanation: Explanation) -> Figure:
    """Show the table of maps, the other measures, and what they allow one to conclude."""
    assert explanation.trust is not None
    rows = table_rows(explanation.trust)
    lines = _wrap(figures(explanation))
    sentences = _wrap(conclude(explanation.trust))
    table_height = 0.6 + 0.26 * len(rows)
    text_height = 0.2 * (len(lines) + len(sentences) + 2) + 0.3
    figure = Figure(figsize=(WIDTH, table_height + text_height))
    split = text_height / (table_height + text_height)
    axes = figure.add_axes((0.012, split, 0.976, 0.98 * (1 - split)))
    axes.set_axis_off()
    table = axes.table(cellText=[list(HEADER), *rows], cellLoc="center", bbox=Bbox.unit())
    table.auto_set_font_size(False)
    table.set_fontsize(8.3)
    for (row, column), cell in table.get_celld().items():
        cell.set_edgecolor("0.8")
        cell.set_height((0.6 if row == 0 else 0.26) / table_height)
        if row == 0 or column == 0:
            cell.set_text_props(weight="bold")
    step = 0.2 / (table_height + text_height)
    text = [*lines, "", "What this allows one to conclude", *sentences]
    for number, line in enumerate(text):
        weight = "bold" if number == len(lines) + 1 else "normal"
        figure.text(0.012, split - 0.6 * step - number * step, line, va="top", fontsize=9.5, weight=weight)
    return figure


def _all_curves(trust: Trust) -> list[tuple[str, Curves]]:
    chance = trust.chance
    mean = Curves(
        chance[0].fractions,
        tuple(_mean(values) for values in zip(*(each.deletion for each in chance), strict=True)),
        tuple(_mean(values) for values in zip(*(each.insertion for each in chance), strict=True)),
    )
    return [*((found.title, found.curves) for found in trust.maps.values()), ("by lot", mean)]


def _wrap(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, _LINE)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _rank(value: float) -> str:
    return "even map" if math.isnan(value) else f"{value:+.2f}"
