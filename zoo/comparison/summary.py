"""What a study showed: each cell beside the plain net of its model and data, paired by seed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from zoo.comparison.results import StudyResults
from zoo.comparison.statistics import (
    Interval,
    beats_guessing,
    bootstrap_difference,
    holm,
    mcnemar_p_value,
    paired_difference,
    seeds_needed,
)
from zoo.comparison.study import BASELINE

LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """A cell minus its plain net, over the seeds that both have. Accuracies are fractions.

    Args:
        seeds: That were paired.
        difference: Of test accuracy at the epoch chosen on held-out images.
        last_difference: Of test accuracy at the last epoch.
        bootstrap: Interval over seeds and images, ``None`` with one seed.
        mcnemar: p-value for each seed.
        adjusted_p: The t test's p-value after Holm's correction over the table, ``None`` without a test.
        seeds_needed: See :func:`zoo.comparison.statistics.seeds_needed`.
        verdict: The sentence that these figures deserve.
    """

    seeds: tuple[int, ...]
    difference: Interval
    last_difference: Interval
    bootstrap: tuple[float, float] | None
    mcnemar: dict[int, float]
    adjusted_p: float | None
    seeds_needed: int | None
    verdict: str


@dataclass(frozen=True)
class CellSummary:
    """One cell of the grid: accuracies over its seeds as fractions, and what it costs.

    ``cost`` holds the columns of :data:`zoo.comparison.results.COST_TYPES`, or ``None`` where it was not measured;
    ``comparison`` is ``None`` for the plain net, and where no seed has both.
    """

    cell: str
    model: str
    attention: str
    data: str
    seeds: tuple[int, ...]
    top1: Interval
    last_top1: Interval
    parameters: int
    macs: int
    cost: dict[str, Any] | None
    comparison: Comparison | None


@dataclass(frozen=True)
class Summary:
    """A study in figures.

    Args:
        name: Of the study.
        cells: In the order of the study, the plain net of each group first.
        provenance: Where the figures come from, one sentence per line.
        remarks: What a reader must know of them: seeds that are missing, code that differs.
    """

    name: str
    cells: tuple[CellSummary, ...]
    provenance: tuple[str, ...]
    remarks: tuple[str, ...]


def summarize(results: StudyResults) -> Summary:
    """Compare every cell of a study with the plain net of its model and data.

    Raises:
        ValueError: The study holds no run.
    """
    if results.runs.empty:
        raise ValueError(f"study {results.name!r} holds no finished run")
    runs = {cell: group.sort_values("seed") for cell, group in results.runs.groupby("cell", sort=False)}
    plain = {
        (group["model"].iloc[0], group["data"].iloc[0]): group
        for group in runs.values()
        if group["attention"].iloc[0] == BASELINE
    }
    costs = {row["cell"]: row for row in results.cost.to_dict("records")}
    pairs = {
        cell: _pair(group, plain.get((group["model"].iloc[0], group["data"].iloc[0])))
        for cell, group in runs.items()
        if group["attention"].iloc[0] != BASELINE
    }
    intervals = {cell: paired_difference(_gain(*pair, "selected_top1")) for cell, pair in pairs.items() if pair}
    p_values = [interval.p_value for interval in intervals.values()]
    adjusted, num_tests = dict(zip(intervals, holm(p_values), strict=True)), len(p_values) - p_values.count(None)
    cells = []
    for cell, group in runs.items():
        pair = pairs.get(cell)
        comparison = _compare(pair, intervals[cell], adjusted[cell], num_tests, results) if pair else None
        cells.append(_describe_cell(cell, group, costs.get(cell), comparison))
    order = {key: number for number, key in enumerate(plain)}
    cells.sort(key=lambda cell: (order.get((cell.model, cell.data), len(order)), cell.attention != BASELINE))
    return Summary(results.name, tuple(cells), tuple(_provenance(results)), tuple(_remarks(cells, results)))


def _pair(group: pd.DataFrame, plain: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the runs of a cell and of its plain net with the seeds that both have, in the same order."""
    if plain is None:
        return None
    seeds = sorted(set(group["seed"]) & set(plain["seed"]))
    if not seeds:
        return None
    return group.set_index("seed").loc[seeds], plain.set_index("seed").loc[seeds]


def _gain(group: pd.DataFrame, plain: pd.DataFrame, column: str) -> list[float]:
    return (group[column] - plain[column]).tolist()


def _compare(
    pair: tuple[pd.DataFrame, pd.DataFrame],
    difference: Interval,
    adjusted_p: float | None,
    num_tests: int,
    results: StudyResults,
) -> Comparison:
    correct, plain_correct = (np.stack(list(runs["predictions"])) == results.labels for runs in pair)
    seeds = tuple(pair[0].index.tolist())
    needed = seeds_needed(_gain(*pair, "selected_top1"))
    return Comparison(
        seeds=seeds,
        difference=difference,
        last_difference=paired_difference(_gain(*pair, "last_top1")),
        bootstrap=bootstrap_difference(correct, plain_correct, level=LEVEL),
        mcnemar={seed: mcnemar_p_value(*both) for seed, *both in zip(seeds, correct, plain_correct, strict=True)},
        adjusted_p=adjusted_p,
        seeds_needed=needed,
        verdict=judge(difference, adjusted_p, num_tests, needed),
    )


def contrast(results: StudyResults, weights: Mapping[str, float]) -> Interval | None:
    """Return a weighted sum of cells' test accuracies, paired by seed: for a question that no single row answers.

    Two cells at 1 and -1 give their difference; a gate's gain on one net minus its gain on another takes four.

    Args:
        results: Of a study.
        weights: By title of the cell; they sum to 0, so that what all cells share drops out.

    Returns:
        ``None`` where no seed has all the cells.

    Raises:
        ValueError: The study has no such cell, or the weights sum to something else.
    """
    if not weights or abs(sum(weights.values())) > 1e-9:
        raise ValueError(f"weights ({dict(weights)}) must be of one cell or more and sum to 0")
    runs = dict(iter(results.runs.groupby("cell")))
    unknown = [cell for cell in weights if cell not in runs]
    if unknown:
        raise ValueError(f"study {results.name!r} has no cell {unknown[0]!r}. It has: {', '.join(runs)}")
    weighted = [weight * runs[cell].set_index("seed")["selected_top1"] for cell, weight in weights.items()]
    sums = pd.concat(weighted, axis=1, join="inner").sum(axis=1)
    return paired_difference(sums.tolist()) if len(sums) else None


def judge(
    difference: Interval,
    adjusted_p: float | None,
    num_tests: int,
    needed: int | None,
    words: tuple[str, str] = ("better", "worse"),
) -> str:
    """Return the sentence that a difference deserves, in percentage points.

    Args:
        difference: Of accuracies, as fractions.
        adjusted_p: After correction for all tests of the table.
        num_tests: How many there are.
        needed: Seeds that would show it.
        words: For a difference above and one below zero.

    >>> judge(paired_difference([0.001, 0.004, -0.002]), 0.7, 4, None)
    'no difference shown: -0.65 to +0.85 points, 3 seeds'
    >>> judge(paired_difference([0.01]), None, 1, None)
    'one seed (+1.00 points): no interval'
    >>> judge(paired_difference([0.01, 0.01]), None, 1, None)
    '2 seeds with the same difference (+1.00 points): no interval'
    """
    if difference.low is None or difference.high is None:
        seeds = "one seed" if difference.num_seeds == 1 else f"{difference.num_seeds} seeds with the same difference"
        return f"{seeds} ({100 * difference.mean:+.2f} points): no interval"
    span = f"{100 * difference.low:+.2f} to {100 * difference.high:+.2f} points, {difference.num_seeds} seeds"
    if not difference.excludes_zero:
        more = f"; about {needed} seeds might show {100 * difference.mean:+.2f}" if needed else ""
        return f"no difference shown: {span}{more}"
    verdict = f"{words[difference.mean < 0]}: {span}"
    if adjusted_p is not None and adjusted_p > 1 - LEVEL:
        verdict += f", not after correction for {num_tests} comparisons (p {adjusted_p:.2g})"
    return verdict


def _describe_cell(
    cell: str, group: pd.DataFrame, cost: dict[str, Any] | None, comparison: Comparison | None
) -> CellSummary:
    first = group.iloc[0]
    return CellSummary(
        cell=cell,
        model=first["model"],
        attention=first["attention"],
        data=first["data"],
        seeds=tuple(group["seed"].tolist()),
        top1=paired_difference(group["selected_top1"].tolist()),
        last_top1=paired_difference(group["last_top1"].tolist()),
        parameters=int(first["parameters"]),
        macs=int(first["macs"]),
        cost=cost,
        comparison=comparison,
    )


def _provenance(results: StudyResults) -> list[str]:
    runs = results.runs
    versions = _distinct(runs["versions"], ("python", "torch", "lightning", "zoo"))
    commits = sorted({str(commit)[:10] for commit in runs["commit"].dropna()})
    seeds = ", ".join(map(str, sorted(set(runs["seed"]))))
    epochs = " or ".join(map(str, sorted(set(runs["last_epoch"]))))
    lines = [
        f"{len(runs)} runs of {epochs} epoch{'s' if epochs != '1' else ''}, seeds {seeds}, "
        f"{len(results.labels):,} test images, precision {', '.join(sorted(set(runs['precision'])))}.",
        f"Trained on {'; '.join(_hardware(runs['hardware']))}; {'; '.join(versions)}; "
        f"commit {', '.join(commits) or 'unknown'}{' with changes' if runs['dirty'].fillna(False).any() else ''}.",
    ]
    if not results.cost.empty:
        cost, where = results.cost.iloc[0], "; ".join(_hardware(results.cost["hardware"]))
        lines.append(
            f"Cost measured side by side in {cost['rounds']} rounds on {where}, "
            f"{cost['threads']} thread{'s' if cost['threads'] > 1 else ''}, commit {str(cost['commit'])[:10]}."
        )
    return lines


def _hardware(column: "pd.Series[str]") -> list[str]:
    found = [json.loads(text) for text in dict.fromkeys(column)]
    return [item.get("accelerator") or f"{item['processor']}, {item['num_cores']} cores" for item in found]


def _distinct(column: "pd.Series[str]", names: tuple[str, ...]) -> list[str]:
    found = [json.loads(text) for text in dict.fromkeys(column)]
    return [", ".join(f"{name} {item[name]}" for name in names if item.get(name)) for item in found]


def _remarks(cells: list[CellSummary], results: StudyResults) -> list[str]:
    remarks = []
    finished = {cell.cell: cell.seeds for cell in cells}
    planned = results.planned or dict.fromkeys(finished, sorted(set(results.runs["seed"])))
    for name, seeds in planned.items():
        missing = sorted(set(seeds) - set(finished.get(name, ())))
        if missing:
            remarks.append(f"{name} lacks seed{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}.")
    for cell in cells:
        if cell.attention != BASELINE and cell.comparison is None:
            remarks.append(f"{cell.cell} has no seed in common with its plain net: nothing to compare.")
    remarks += _find_guessing(cells, results.labels)
    if results.runs["code_digest"].nunique() > 1:
        remarks.append("The runs were made by different versions of the code.")
    for data, group in results.runs.groupby("data"):
        if group["data_digest"].nunique() > 1:
            remarks.append(f"The runs on {data} saw different data.")
    return remarks


def _find_guessing(cells: list[CellSummary], labels: np.ndarray) -> list[str]:
    """Name each model and data set on which no net is shown to have learned anything."""
    chance = float(np.unique(labels, return_counts=True)[1].max()) / len(labels)
    means: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        means.setdefault((cell.model, cell.data), []).append(cell.top1.mean)
    return [
        f"No net of {model} on {data} does better than naming the commonest class, {100 * chance:.1f} % of "
        f"{len(labels):,} test images: differences between them say nothing."
        for (model, data), group in means.items()
        if not any(beats_guessing(mean, chance, len(labels)) for mean in group)
    ]
