"""What docs/comparison.md and the README say of the studies whose results lie in benchmarks/studies."""

from functools import cache
from pathlib import Path

from zoo.comparison.results import read_results
from zoo.comparison.summary import CellSummary, Summary, summarize
from zoo.comparison.tables import format_markdown, markdown_table, percent, points

STUDIES = Path(__file__).resolve().parent.parent / "benchmarks" / "studies"
NONE_YET = "No study has been run yet."
READING = (
    "Mean and standard deviation over seeds; under each attention its difference to plain in points, paired by seed, "
    "with a 95 % interval. Bold: the interval leaves out zero; * also after Holm's correction over the table."
)


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
    """Return a small table of each study: the plain nets, and what each attention adds to them."""
    parts = [f"**{study.name}**\n\n{_short_table(study)}\n\n{READING}\n\n{_origin(study)}" for study in read_studies()]
    return "\n\n".join(parts) if parts else NONE_YET


def _short_table(study: Summary) -> str:
    attentions = list(dict.fromkeys(cell.attention for cell in study.cells if cell.comparison is not None))
    groups = list(dict.fromkeys((cell.model, cell.data) for cell in study.cells))
    cells = {(cell.model, cell.data, cell.attention): cell for cell in study.cells}
    rows = []
    for model, data in groups:
        found = [cells.get((model, data, attention)) for attention in attentions]
        plain = cells.get((model, data, "none"))
        rows.append(
            [
                f"{model}, {data}",
                "-" if plain is None else percent(plain.top1),
                *(_short_difference(cell) for cell in found),
            ]
        )
    for model in dict.fromkeys(model for model, _ in groups):
        costs = [next((c.cost for c in study.cells if (c.model, c.attention) == (model, a)), None) for a in attentions]
        ratios = ["-" if cost is None else f"{cost['latency_ratio_batch1']:.2f}" for cost in costs]
        rows.append([f"{model}, time for one image x plain", "1", *ratios])
    return markdown_table(("net, images", "plain: test top-1 %", *attentions), rows)


def _short_difference(cell: CellSummary | None) -> str:
    if cell is None or cell.comparison is None:
        return ""
    difference, adjusted = cell.comparison.difference, cell.comparison.adjusted_p
    if not difference.excludes_zero:
        return points(difference)
    return f"**{points(difference)}**" + (" *" if adjusted is not None and adjusted < 1 - difference.level else "")


def _origin(study: Summary) -> str:
    return " ".join((*study.remarks, *study.provenance))
