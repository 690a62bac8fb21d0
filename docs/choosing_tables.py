"""What docs/choosing.md says in figures: claims held against studies, measures against the truth, answers given."""

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from study_tables import STUDIES, read_studies

from zoo.comparison.results import read_results
from zoo.comparison.runs import Cell
from zoo.comparison.statistics import holm, paired_difference
from zoo.comparison.summary import CellSummary, contrast, judge
from zoo.comparison.tables import markdown_table, points

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
NOT_YET = "Not measured yet."

Weights = dict[str, float]


@dataclass(frozen=True)
class Claim:
    """Where a claim of the page is looked for.

    Args:
        study: The study that bears on it.
        bears_on_it: Which of the study's cells are shown beside their plain nets.
        contrasts: Differences between cells or between gains that no cell shows by itself, by what they mean.
    """

    study: str
    bears_on_it: Callable[[CellSummary], bool]
    contrasts: Callable[[], dict[str, Weights]]


def _cell(model: str, attention: str, data: str = "") -> str:
    return Cell(model, attention, data, shows_data=bool(data)).title


def _gain(model: str, attention: str, data: str = "") -> Weights:
    """Return the weights of what an attention adds to the plain net."""
    return {_cell(model, attention, data): 1, _cell(model, "none", data): -1}


def _minus(first: Weights, second: Weights) -> Weights:
    every = {cell: first.get(cell, 0) - second.get(cell, 0) for cell in {**first, **second}}
    return {cell: weight for cell, weight in every.items() if weight}


_NARROW, _USUAL = "resnet20(width_multiplier=0.5)", "resnet20"
_LIGHT = "mobilenet_v1(width_multiplier=0.125, stem=cifar)"


def _digits(position_jitter: float, clutter: int) -> str:
    return f"cluttered_digits(position_jitter={position_jitter}, clutter={clutter})"


def _beyond_se() -> dict[str, Weights]:
    gains = {gate: _gain(_NARROW, gate, _digits(0.0, 0)) for gate in ("se", "sam", "cbam")}
    return {f"{gate} minus se": _minus(gains[gate], gains["se"]) for gate in ("sam", "cbam")}


def _beyond_calm() -> dict[str, Weights]:
    places = {"clutter": (0.0, 8), "other positions": (1.0, 0), "both": (1.0, 8)}
    return {
        f"gain of {gate} with {place}, minus its gain on centred digits without clutter": _minus(
            _gain(_NARROW, gate, _digits(*knobs)), _gain(_NARROW, gate, _digits(0.0, 0))
        )
        for place, knobs in places.items()
        for gate in ("se", "sam", "cbam")
    }


def _light_beyond_usual() -> dict[str, Weights]:
    return {
        f"gain of {gate} on mobilenet_v1, minus its gain on resnet20": _minus(_gain(_LIGHT, gate), _gain(_USUAL, gate))
        for gate in ("se", "cbam")
    }


def _start() -> dict[str, Weights]:
    fresh, identity = _gain(_USUAL, "cbam"), _gain(_USUAL, "cbam(identity_start=True)")
    return {"cbam from the identity minus cbam from its fresh start": _minus(identity, fresh)}


def _is_calm(cell: CellSummary) -> bool:
    return cell.data == _digits(0.0, 0)


CLAIMS = {
    "centred": Claim("cluttered_digits_claims", _is_calm, _beyond_se),
    "varied": Claim("cluttered_digits_claims", lambda cell: not _is_calm(cell), _beyond_calm),
    "light": Claim("cifar10_gates", lambda cell: "identity_start" not in cell.attention, _light_beyond_usual),
    "start": Claim("cifar10_gates", lambda cell: cell.attention.startswith("cbam") and cell.model == _USUAL, _start),
}


def claim_table(name: str) -> str:
    """Return the differences to the plain net that bear on a claim, and those between them that decide it."""
    claim = CLAIMS[name]
    path = STUDIES / f"{claim.study}.parquet"
    if not path.exists():
        return NOT_YET
    rows = [
        [f"{cell.attention} minus none: {cell.model}, {cell.data}", points(cell.comparison.difference),
         cell.comparison.verdict]
        for study in read_studies()
        if study.name == claim.study
        for cell in study.cells
        if cell.comparison is not None and claim.bears_on_it(cell)
    ]  # fmt: skip
    results = read_results(path)
    contrasts = {meaning: contrast(results, weights) for meaning, weights in claim.contrasts().items()}
    found = {meaning: interval for meaning, interval in contrasts.items() if interval is not None}
    adjusted = holm([interval.p_value for interval in found.values()])
    for (meaning, interval), p_value in zip(found.items(), adjusted, strict=True):
        sentence = judge(interval, p_value, len(found), None, words=("larger", "smaller"))
        rows.append([f"*{meaning}*", points(interval), sentence])
    return markdown_table(("difference", "points", "what it shows"), rows)


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
    body += [[f"*{meaning}*", "-", text, "-"] for meaning, text in _fresh_start_contrasts(newest)]
    header = ("at the places of the gates", "test top-1 %", "minus plain, points", "training loss")
    last = next(reversed(newest.values()))
    seeds = ", ".join(sorted({seed for _, seed in newest}, key=int))
    origin = (
        f"{last['data']}, after the last epoch, seeds {seeds}; 95 % t intervals paired by seed. In italics: "
        "differences between two rows, with p of the t test after Holm's correction for their number."
    )
    return f"{markdown_table(header, body)}\n\n{origin} {_origins(newest.values())}"


_FRESH_START_PAIRS = (
    ("still", "quarter", "fresh CBAM never trained minus the constant"),
    ("fresh", "quarter", "fresh CBAM minus the constant"),
    ("fresh", "still", "fresh CBAM minus the same never trained"),
    ("times four", "fresh", "times 4 minus fresh CBAM"),
    ("identity", "fresh", "identity start minus fresh CBAM"),
)


def _fresh_start_contrasts(rows: Mapping[tuple[str, str], dict[str, str]]) -> list[tuple[str, str]]:
    """Return what the text beside the table says of two rows, tested by their difference."""
    seeds = sorted({seed for _, seed in rows})
    found = {
        meaning: paired_difference([float(rows[arm, seed]["top1"]) - float(rows[base, seed]["top1"]) for seed in seeds])
        for arm, base, meaning in _FRESH_START_PAIRS
    }
    adjusted = holm([interval.p_value for interval in found.values()])
    return [
        (meaning, points(interval) + ("" if p_value is None else f", p {p_value:.2g}"))
        for (meaning, interval), p_value in zip(found.items(), adjusted, strict=True)
    ]


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
