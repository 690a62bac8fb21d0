"""Write down answers of ``zoo recommend``, so that documents can show them.

    python benchmarks/recommendations.py runs/recommendations/NAME/recommendation.json ...

appends a row per difference to ``benchmarks/results/recommendations.csv``.
"""

import argparse
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurements import append_rows
from zoo.comparison.choices import Choice, parse_choice

RESULTS = Path(__file__).parent / "results" / "recommendations.csv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the answers and append their rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", nargs="+", type=Path, metavar="FILE", help="recommendation.json of an answer")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for path in options.answers:
        answer = json.loads(path.read_text(encoding="utf-8"))
        date = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
        append_rows(options.output, list(rows_of(answer, date)))


def rows_of(answer: Mapping[str, Any], date: str) -> Iterator[dict[str, Any]]:
    """Yield one row per difference; an answer without any gives none.

    >>> list(rows_of({"differences": []}, "2026-01-01"))
    []
    """
    for difference in answer["differences"]:
        commit = answer["commit"] or {"id": None, "dirty": None}
        yield {
            "date": date,
            "commit": commit["id"],
            "dirty": commit["dirty"],
            "processor": answer["hardware"]["processor"],
            "num_cores": answer["hardware"]["num_cores"],
            "python": answer["versions"]["python"],
            "torch": answer["versions"]["torch"],
            "data": _data_title(answer["request"]),
            "model": answer["request"]["model"],
            "budget_minutes": answer["request"]["budget_minutes"],
            "margin_points": answer["request"]["margin_points"],
            "answer": f"{answer['recommendation'] or 'nothing'} ({answer['confidence']})",
            "epochs": answer["runs"]["epochs"],
            "net": difference["net"],
            "base": difference["base"],
            "mean": round(difference["mean"], 5),
            "low": round(difference["low"], 5),
            "high": round(difference["high"], 5),
            "verdict": difference["verdict"],
            "seeds": difference["num_seeds"],
            "images": difference["num_images"],
            "latency_ratio": round(answer["price"][difference["net"]]["latency"]["median"], 4),
            "minutes": answer["minutes"],
        }


def _data_title(request: Mapping[str, Any]) -> str:
    """Return the data with the options that were given to all runs, such as the size of the images."""
    data = parse_choice(request["data"])
    return Choice(data.name, {**data.options, **request.get("recipe", {}).get("data", {})}).title


if __name__ == "__main__":
    main()
