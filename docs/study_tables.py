"""What docs/comparison.md and the README say of the studies whose results lie in benchmarks/studies."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from zoo.comparison.results import read_results
from zoo.comparison.summary import Summary, summarize
from zoo.comparison.tables import format_markdown, markdown_table, percent, points

STUDIES = Path(__file__).resolve().parent.parent / "benchmarks" / "studies"
NONE_YET = "No study has been run yet."
README_HEADER = ("net", "seeds", "test top-1 %", "minus plain, points", "latency x plain", "what it shows")


@cache
def read_studies() -> tuple[Summary, ...]:
    """Return every committed study, summed up, by name."""
    return tuple(summarize(read_results(path)) for path in sorted(STUDIES.glob("*.parquet")))


def studies_in_full() -> str:
    """Return the whole table of each study, what one must know to read it, and the command that draws its page."""
    parts = [
        f"{format_markdown(study)}\nThe page with pictures, learning curves, classes and confusions: "
        f"`zoo compare benchmarks/studies/{study.name}.parquet`; the study again: "
        f"`zoo compare configs/studies/{study.name}.yaml --jobs 2`."
        for study in read_studies()
    ]
    return "\n\n".join(parts) if parts else NONE_YET


def studies_in_short() -> str:
    """Return a few columns of each study."""
    parts = [
        f"**{study.name}**\n\n{markdown_table(README_HEADER, _short_rows(study))}\n\n"
        + " ".join((*study.remarks, *study.provenance))
        for study in read_studies()
    ]
    return "\n\n".join(parts) if parts else NONE_YET


def _short_rows(study: Summary) -> Sequence[Sequence[str]]:
    return [
        [
            cell.cell,
            str(len(cell.seeds)),
            percent(cell.top1),
            "-" if cell.comparison is None else points(cell.comparison.difference),
            "-" if cell.cost is None else f"{cell.cost['latency_ratio_batch1']:.2f}",
            "the plain net" if cell.comparison is None else cell.comparison.verdict,
        ]
        for cell in study.cells
    ]
