"""How every benchmark measures: interleaved rounds, ratios within a round, rows that say where they come from."""

import csv
import datetime
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from zoo.provenance import describe_commit, describe_hardware, describe_versions

Bound = Literal["at least", "at most"]


@dataclass(frozen=True)
class Target:
    """What a figure should reach.

    Args:
        value: In the unit of the figure.
        bound: Whether the figure should be at least or at most the value.
    """

    value: float
    bound: Bound = "at least"

    def is_reached_by(self, figure: float) -> bool:
        """Compare a median with the target.

        >>> Target(0.9).is_reached_by(0.91), Target(1.3, "at most").is_reached_by(1.31)
        (True, False)
        """
        return figure >= self.value if self.bound == "at least" else figure <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the result: what was measured, once per round.

    Args:
        subject: Of what: ``resnet20``, ``resnet20 cbam``, ``this machine``.
        what: What was measured.
        unit: ``images/s``, ``x`` for a ratio, ``%``, ``s``.
        values: One per round.
        target: What the median should reach; ``None`` for a figure that is only stated.
        precision: The arithmetic behind it.
    """

    subject: str
    what: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None
    precision: str = ""

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """``yes`` or ``no`` where there is a target, else nothing."""
        if self.target is None:
            return ""
        return "yes" if self.target.is_reached_by(self.median) else "no"


def interleave(measures: Mapping[Any, Callable[[], float]], rounds: int) -> dict[Any, tuple[float, ...]]:
    """Call every measure once per round, one after the other: A B C, A B C.

    A machine that gets slower or busier while this runs then touches all measures alike, and a ratio of two values of
    one round stands although either value moves. Every other round goes backwards, so that none always follows the
    same neighbour.

    Args:
        measures: Functions that return one value each.
        rounds: At least 1.

    Returns:
        The values of each measure, in the order of the rounds.

    Raises:
        ValueError: ``rounds`` is below 1.

    >>> calls = []
    >>> measures = {name: lambda name=name: calls.append(name) or len(calls) for name in "AB"}
    >>> interleave(measures, rounds=2), "".join(calls)
    ({'A': (1, 4), 'B': (2, 3)}, 'ABBA')
    """
    if rounds < 1:
        raise ValueError(f"rounds ({rounds}) must be at least 1")
    values: dict[Any, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        order = list(measures) if number % 2 == 0 else list(measures)[::-1]
        for name in order:
            values[name].append(measures[name]())
    return {name: tuple(series) for name, series in values.items()}


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, ...]:
    """Divide value by value, each pair from one round.

    >>> ratios([2.0, 9.0], [1.0, 3.0])
    (2.0, 3.0)
    """
    return tuple(above / below for above, below in zip(numerators, denominators, strict=True))


class OtherPrograms:
    """Sees how much of the processors other programs took, between its construction and the call of ``share``.

    Linux only; elsewhere the share is not a number. Child processes count as our own once they have ended.
    """

    def __init__(self) -> None:
        self._own, self._busy, self._all = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        own = sum(os.times()[:4])
        stat = Path("/proc/stat")
        if not stat.exists():
            return own, math.nan, math.nan
        user, nice, system, idle, waiting, *_ = map(int, stat.read_text().split()[1:9])
        per_second = os.sysconf("SC_CLK_TCK")
        busy = user + nice + system
        return own, busy / per_second, (busy + idle + waiting) / per_second

    def share(self) -> float:
        """Return percent of the time of all processors."""
        own, busy, total = self._read()
        elapsed = max(total - self._all, 0.01)
        return 100 * max(0.0, (busy - self._busy) - (own - self._own)) / elapsed


def describe_run(**settings: Any) -> dict[str, Any]:
    """Return the columns that say when, where and with what a run of a benchmark was made.

    Args:
        **settings: Columns of this benchmark: seed, batch size, data.
    """
    commit = describe_commit() or {"id": None, "dirty": None}
    hardware, versions = describe_hardware("cpu"), describe_versions()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit["id"],
        "dirty": commit["dirty"],
        "processor": hardware["processor"],
        "num_cores": hardware["num_cores"],
        "num_threads": torch.get_num_threads(),
        "python": versions["python"],
        "torch": versions["torch"],
        "torchvision": versions["torchvision"],
        "lightning": versions["lightning"],
        **settings,
    }


def to_rows(run: Mapping[str, Any], figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Return one row per figure: the columns of the run, then the figure's own."""
    return [
        {
            **run,
            "precision": figure.precision,
            "rounds": len(figure.values),
            "subject": figure.subject,
            "what": figure.what,
            "unit": figure.unit,
            "median": f"{figure.median:.5g}",
            "min": f"{min(figure.values):.5g}",
            "max": f"{max(figure.values):.5g}",
            "target": "" if figure.target is None else str(figure.target),
            "reached": figure.verdict,
        }
        for figure in figures
    ]


def append_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a CSV file, which is made when missing; earlier rows are never touched.

    Raises:
        ValueError: The file has other columns.
    """
    columns = list(rows[0])
    if path.exists():
        with path.open(newline="") as file:
            found = next(csv.reader(file), [])
        if found != columns:
            raise ValueError(f"{path} has the columns {', '.join(found)}; expected {', '.join(columns)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def print_table(title: str, figures: Sequence[Figure]) -> None:
    """Print the figures, reached or not, as one table."""
    table = Table(title=title, title_justify="left")
    for column in ("", "what", "median", "min - max", "unit", "target", "reached"):
        table.add_column(column, justify="right" if column in ("median", "min - max") else "left")
    for previous, figure in zip([None, *figures], figures, strict=False):
        if previous is not None and previous.subject != figure.subject:
            table.add_section()
        subject = figure.subject if previous is None or previous.subject != figure.subject else ""
        spread = f"{min(figure.values):.4g} - {max(figure.values):.4g}"
        target = "" if figure.target is None else str(figure.target)
        table.add_row(subject, figure.what, f"{figure.median:.4g}", spread, figure.unit, target, figure.verdict)
    Console(width=None if sys.stdout.isatty() else 130).print(table)
