"""The table of a study: in the terminal, as Markdown and as CSV, from one definition of its columns."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.comparison.statistics import Interval
from zoo.comparison.study import BASELINE
from zoo.comparison.summary import CellSummary, Summary

if TYPE_CHECKING:
    from rich.console import Console

HEADER = (
    "net",
    "seeds",
    "top-1 %",
    "last epoch %",
    "difference, points",
    "Holm p",
    "McNemar p",
    "parameters",
    "MACs",
    "latency, 1",
    "latency, 64",
    "training rate",
    "what it shows",
)
SHORT_HEADER = (
    "net",
    "seeds",
    "top-1 %",
    "last %",
    "difference",
    "Holm p",
    "parameters",
    "latency x1",
    "x64",
    "training rate",
)
EXPLANATION = (
    "top-1: test accuracy, mean and standard deviation over seeds, at the epoch chosen on images held out of training; "
    "last epoch: the same without a choice. difference: to the plain net, paired by seed, with a 95 % t interval and, "
    "in brackets, a bootstrap over seeds and images. Holm p: of the t test, corrected over the table. McNemar p: of "
    "each seed's pair. With few seeds the bootstrap is too narrow, and the verdict goes by the t interval. Intervals "
    "and p hold for a number of seeds that was settled before the results were seen; seeds that might show a "
    "difference would do so with even odds, were mean and spread to stay as they are. latency and training rate: "
    "relative to the plain net, in batches of 1 and 64, with the spread over rounds."
)


def percent(interval: Interval) -> str:
    """Write a mean of fractions with its standard deviation in percent.

    >>> percent(Interval(0.9, 0.89, 0.91, 0.95, 3, 0.004, 0.0))
    '90.00 ± 0.40'
    """
    return f"{100 * interval.mean:.2f}" + ("" if interval.std is None else f" ± {100 * interval.std:.2f}")


def points(interval: Interval, bootstrap: tuple[float, float] | None = None) -> str:
    """Write a difference of fractions in percentage points, with its intervals.

    >>> points(Interval(0.01, -0.002, 0.022, 0.95, 3, 0.004, 0.1), (0.001, 0.019))
    '+1.00 (-0.20 to +2.20) [+0.10 to +1.90]'
    """
    text = f"{100 * interval.mean:+.2f}"
    if interval.low is not None and interval.high is not None:
        text += f" ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
    return text if bootstrap is None else f"{text} [{100 * bootstrap[0]:+.2f} to {100 * bootstrap[1]:+.2f}]"


def ratio(cell: CellSummary, column: str) -> str:
    """Write a cost relative to the plain net with its spread over rounds, or a dash where it was not measured."""
    if cell.cost is None:
        return "-"
    return f"{cell.cost[column]:.2f} ({cell.cost[f'{column}_low']:.2f} to {cell.cost[f'{column}_high']:.2f})"


def row(cell: CellSummary) -> list[str]:
    """Return the texts of one cell, in the order of ``HEADER``."""
    versus = cell.comparison
    return [
        cell.cell,
        ", ".join(map(str, cell.seeds)),
        percent(cell.top1),
        percent(cell.last_top1),
        "-" if versus is None else points(versus.difference, versus.bootstrap),
        "-" if versus is None or versus.adjusted_p is None else f"{versus.adjusted_p:.3g}",
        "-" if versus is None else ", ".join(f"{value:.2g}" for value in versus.mcnemar.values()),
        f"{cell.parameters:,}",
        f"{cell.macs / 1e6:.2f} M",
        ratio(cell, "latency_ratio_batch1"),
        ratio(cell, "latency_ratio_batch64"),
        ratio(cell, "train_rate_ratio"),
        what_it_shows(cell),
    ]


def what_it_shows(cell: CellSummary) -> str:
    """Return the sentence that a cell deserves; the plain net and a net without one are named as such."""
    if cell.comparison is not None:
        return cell.comparison.verdict
    return "the plain net" if cell.attention == BASELINE else "no seed in common with a plain net"


def format_markdown(summary: Summary) -> str:
    """Return the study as Markdown: remarks, table, sentences' explanation, provenance."""
    parts = [f"### {summary.name}"]
    parts += ["\n".join(f"- {remark}" for remark in summary.remarks)] if summary.remarks else []
    parts.append(markdown_table(HEADER, [row(cell) for cell in summary.cells]))
    parts += [EXPLANATION, " ".join(summary.provenance)]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a Markdown table with the first and the last column to the left and all others to the right.

    >>> print(markdown_table(["a", "b", "c"], [["x", "1", "|y"]]))
    | a | b | c |
    | :-- | --: | :-- |
    | x | 1 | \|y |
    """
    rule = [":--"] + ["--:"] * (len(header) - 2) + [":--"]
    lines = [header, rule, *([text.replace("|", "\\|") for text in texts] for texts in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_csv(summary: Summary) -> str:
    """Return one line per cell with plain numbers, accuracies as fractions and empty fields for what is not known."""
    lines = [_numbers(cell) for cell in summary.cells]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _numbers(cell: CellSummary) -> dict[str, object]:
    versus = cell.comparison
    numbers: dict[str, object] = {
        "cell": cell.cell,
        "model": cell.model,
        "attention": cell.attention,
        "data": cell.data,
        "seeds": " ".join(map(str, cell.seeds)),
        "top1_mean": cell.top1.mean,
        "top1_std": cell.top1.std,
        "last_top1_mean": cell.last_top1.mean,
        "last_top1_std": cell.last_top1.std,
        "parameters": cell.parameters,
        "macs": cell.macs,
    }
    difference = None if versus is None else versus.difference
    numbers |= {
        "difference": None if difference is None else difference.mean,
        "difference_low": None if difference is None else difference.low,
        "difference_high": None if difference is None else difference.high,
        "bootstrap_low": None if versus is None or versus.bootstrap is None else versus.bootstrap[0],
        "bootstrap_high": None if versus is None or versus.bootstrap is None else versus.bootstrap[1],
        "last_difference": None if versus is None else versus.last_difference.mean,
        "p_value": None if difference is None else difference.p_value,
        "holm_p_value": None if versus is None else versus.adjusted_p,
        "seeds_needed": None if versus is None else versus.seeds_needed,
        "verdict": None if versus is None else versus.verdict,
    }
    for column in ("latency_ratio_batch1", "latency_ratio_batch64", "train_rate_ratio"):
        for name in (column, f"{column}_low", f"{column}_high"):
            numbers[name] = None if cell.cost is None else cell.cost[name]
    return numbers


def print_summary(summary: Summary, console: "Console | None" = None) -> None:
    """Print the study: a short table, then the sentence each net deserves, then where the figures come from."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=max(console.width, 200))
    table = Table(title=escape(f"Study {summary.name}"))
    table.add_column("net", overflow="fold")
    for column in SHORT_HEADER[1:]:
        table.add_column(column, justify="right")
    for cell in summary.cells:
        table.add_row(*map(escape, short_row(cell)))
    console.print(table, highlight=False)
    for cell in summary.cells:
        if cell.comparison is not None:
            console.print(f"{cell.cell}: {cell.comparison.verdict}", highlight=False, soft_wrap=True, markup=False)
    for line in (*summary.remarks, *summary.provenance):
        console.print(line, highlight=False, style="dim", markup=False)


def short_row(cell: CellSummary) -> list[str]:
    """Return the texts of one cell for the terminal, in the order of ``SHORT_HEADER``."""
    versus, cost = cell.comparison, cell.cost
    return [
        cell.cell,
        str(len(cell.seeds)),
        percent(cell.top1),
        percent(cell.last_top1),
        "-" if versus is None else points(versus.difference),
        "-" if versus is None or versus.adjusted_p is None else f"{versus.adjusted_p:.3g}",
        f"{cell.parameters:,}",
        "-" if cost is None else f"{cost['latency_ratio_batch1']:.2f}",
        "-" if cost is None else f"{cost['latency_ratio_batch64']:.2f}",
        "-" if cost is None else f"{cost['train_rate_ratio']:.2f}",
    ]
