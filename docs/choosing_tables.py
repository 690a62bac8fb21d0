"""What docs/choosing.md says in figures: claims held against studies, measures against the truth, answers given."""

import csv
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from study_tables import read_studies

from zoo.comparison.statistics import paired_difference
from zoo.comparison.summary import CellSummary
from zoo.comparison.tables import markdown_table, points

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
NOT_YET = "Not measured yet."

# Each claim of the page: in which study it is looked for, and in which of its cells.
CLAIMS: dict[str, tuple[str, Callable[[CellSummary], bool]]] = {
    "centred": (
        "cluttered_digits_claims",
        lambda cell: "position_jitter=0.0" in cell.data and "clutter=0" in cell.data,
    ),
    "varied": (
        "cluttered_digits_claims",
        lambda cell: not ("position_jitter=0.0" in cell.data and "clutter=0" in cell.data),
    ),
    "light": ("cifar10_gates", lambda cell: cell.data.startswith("cifar10")),
}


def claim_table(name: str) -> str:
    """Return the differences to the plain net that bear on a claim."""
    study_name, bears_on_it = CLAIMS[name]
    found = [study for study in read_studies() if study.name == study_name]
    rows = [
        [cell.model, cell.attention, cell.data, points(cell.comparison.difference), cell.comparison.verdict]
        for study in found
        for cell in study.cells
        if cell.comparison is not None and bears_on_it(cell)
    ]
    if not rows:
        return NOT_YET
    return markdown_table(("net", "attention", "data", "minus plain, points", "what it shows"), rows)


def measures_table() -> str:
    """Return the newest run of ``benchmarks/data_measures.py``."""
    rows = _newest("data_measures.csv")
    if not rows:
        return NOT_YET
    body = [[row["subject"], row["setting"], row["what"], _figure(row), row["num_images"]] for row in rows]
    return f"{markdown_table(('images', 'setting', 'what', 'value', 'number'), body)}\n\n{_origin(rows[0])}"


def _figure(row: dict[str, str]) -> str:
    if row["unit"] == "yes=1":
        return "yes" if float(row["value"]) else "no"
    return f"{float(row['value']):.3f} {row['unit']}".strip()


def answers_table() -> str:
    """Return the answers of ``zoo recommend`` that ``benchmarks/recommendations.py`` wrote down."""
    rows = _read("recommendations.csv")
    if not rows:
        return NOT_YET
    body = [
        [row["data"], row["model"], row["answer"], f"{row['net']} - {row['base']}", _interval(row), row["verdict"],
         row["seeds"], row["images"], f"{float(row['latency_ratio']):.2f}", f"{float(row['minutes']):.0f}"]
        for row in rows
    ]  # fmt: skip
    header = ("images", "net", "answer", "difference", "points", "what it shows", "seeds", "held-out images",
              "time per image x plain", "minutes")  # fmt: skip
    return f"{markdown_table(header, body)}\n\n{_origins(rows)}"


def fresh_start_table() -> str:
    """Return what each part of a fresh CBAM costs, out of the runs of ``benchmarks/fresh_start.py``."""
    newest = {(row["arm"], row["seed"]): row for row in _read("fresh_start.csv")}
    if not newest:
        return NOT_YET
    body = []
    for arm in dict.fromkeys(arm for arm, _ in newest):
        rows = {seed: row for (name, seed), row in newest.items() if name == arm}
        paired = [float(rows[seed]["top1"]) - float(newest["plain", seed]["top1"]) for seed in rows]
        difference = "-" if arm == "plain" else points(paired_difference(paired))
        top1, loss = (statistics.fmean(float(row[name]) for row in rows.values()) for name in ("top1", "train_loss"))
        body.append([next(iter(rows.values()))["meaning"], f"{100 * top1:.2f}", difference, f"{loss:.3f}"])
    header = ("at the places of the gates", "test top-1 %", "minus plain, points", "training loss")
    last = next(reversed(newest.values()))
    seeds = ", ".join(sorted({seed for _, seed in newest}, key=int))
    origin = f"{last['data']}, after the last epoch, seeds {seeds}; 95 % t intervals paired by seed."
    return f"{markdown_table(header, body)}\n\n{origin} {_origins(newest.values())}"


def _interval(row: dict[str, str]) -> str:
    mean, low, high = (100 * float(row[name]) for name in ("mean", "low", "high"))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def _newest(name: str) -> list[dict[str, str]]:
    rows = _read(name)
    return [row for row in rows if row["date"] == rows[-1]["date"]]


def _read(name: str) -> list[dict[str, str]]:
    path = RESULTS / name
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _origins(rows: Iterable[dict[str, str]]) -> str:
    """Say where each of the rows was measured, once."""
    return " ".join(dict.fromkeys(_origin(row) for row in rows))


def _origin(row: dict[str, str]) -> str:
    return (
        f"{row['date'][:10]}, {row['processor']}, Python {row['python']}, torch {row['torch']}, "
        f"commit {row['commit'][:10]}."
    )


def tables() -> dict[str, Callable[[], str]]:
    """Return every block of the page by name."""
    claims: dict[str, Callable[[], str]] = {f"claim {name}": _claim(name) for name in CLAIMS}
    return {**claims, "measures": measures_table, "answers": answers_table, "fresh start": fresh_start_table}


def _claim(name: str) -> Callable[[], str]:
    return lambda: claim_table(name)
