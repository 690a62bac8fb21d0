"""Write the tables of the documents from cards, benchmark rows, studies and docstrings: no figure is typed by hand.

python docs/tables.py            writes README.md and docs/*.md
python docs/tables.py --check    fails when one of them is not what cards, rows and studies say
"""

import argparse
import csv
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from attention_tables import tables as attention_tables
from caption_tables import tables as caption_tables
from choosing_tables import tables as choosing_tables
from study_tables import studies_in_full, studies_in_short

from zoo.pretrained import WeightCard, read_card
from zoo.registry import CAPTIONERS

ROOT = Path(__file__).resolve().parent.parent


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, the first column to the left and all others to the right.

    >>> print(format_table(["a", "b"], [["x", "1"]]))
    | a | b |
    | :-- | --: |
    | x | 1 |
    """
    lines = [header, [":--"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def weights_table() -> str:
    """Return one row per classifier's card in ``weights/``, and what all of them have in common."""
    cards = [read_card(path) for path in sorted((ROOT / "weights").glob("*.yaml"))]
    cards = [card for card in cards if card.model["name"] not in CAPTIONERS]
    cards.sort(key=lambda card: (card.data["name"], card.cost["macs"], card.cost["parameters"]))
    header = [
        "weights",
        "parameters",
        "MACs",
        "epochs",
        "seed",
        "test top-1, selected epoch",
        "last epoch",
        "NLL",
        "ECE",
    ]
    table = format_table(header, [_weights_row(card) for card in cards])
    origins: dict[str, list[str]] = {}
    for card in cards:
        commits = origins.setdefault(_origin(card), [])
        commits.append(card.commit["id"][:10] if card.commit else "unknown")
    made = [f"{origin}, commit {', '.join(dict.fromkeys(commits))}." for origin, commits in origins.items()]
    return f"{table}\n\n{' '.join(made)}"


def _weights_row(card: WeightCard) -> list[str]:
    selected, last = card.metrics["selected_epoch"], card.metrics["last_epoch"]
    return [
        f"[`{card.name}`](weights/{card.name}.yaml)",
        f"{card.cost['parameters']:,}",
        f"{card.cost['macs'] / 1e6:.2f} M",
        str(last["epoch"]),
        str(card.seed),
        f"{100 * selected['top1']:.2f} % (epoch {selected['epoch']})",
        f"{100 * last['top1']:.2f} %",
        f"{card.claim['nll']:.3f}",
        f"{card.claim['ece']:.3f}",
    ]


def _origin(card: WeightCard) -> str:
    hardware, versions = card.hardware, card.versions
    where = hardware["accelerator"] or f"{hardware['processor']}, {hardware['num_cores']} cores"
    return f"{where}, Python {versions['python']}, torch {versions['torch']}, lightning {versions['lightning']}"


def speed_table() -> str:
    """Return the figures with a target of the newest run in ``benchmarks/results/training.csv``, reached or not."""
    path = ROOT / "benchmarks" / "results" / "training.csv"
    if not path.exists():
        return "Not measured yet."
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    newest = [row for row in rows if row["date"] == rows[-1]["date"]]
    body = [
        [
            f"{row['subject']}: {row['what']}",
            f"{float(row['median']):.3g}",
            f"{float(row['min']):.3g} to {float(row['max']):.3g}",
            row["unit"],
            row["target"],
            row["reached"],
        ]
        for row in newest
        if row["target"]
    ]
    run = newest[0]
    origin = (
        f"{run['date'][:10]}, {run['processor']}, {run['num_threads']} threads, Python {run['python']}, "
        f"torch {run['torch']}, lightning {run['lightning']}, commit {run['commit'][:10]}, seed {run['seed']}."
    )
    return f"{format_table(['what', 'median', 'range', 'unit', 'aim', 'reached'], body)}\n\n{origin}"


TABLES: dict[str, Callable[[], str]] = {
    "weights": weights_table,
    "speed": speed_table,
    "comparison": studies_in_short,
    "studies": studies_in_full,
    **choosing_tables(),
    **attention_tables(),
    **caption_tables(),
}


def fill(text: str) -> str:
    """Return a document with everything between ``<!-- NAME -->`` and ``<!-- end NAME -->`` made anew."""
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if pattern.search(text):
            text = pattern.sub(lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text)
    return text


def main() -> int:
    """Write or check the documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a table is stale")
    check = parser.parse_args().check
    stale = []
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = document.read_text(encoding="utf-8")
        after = fill(before)
        if before != after:
            stale.append(document.relative_to(ROOT).as_posix())
            if not check:
                document.write_text(after, encoding="utf-8")
    if check and stale:
        print(
            f"{', '.join(stale)}: tables are not what cards, rows and studies say; run `make tables`", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
