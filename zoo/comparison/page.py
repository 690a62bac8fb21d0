"""The report of a study: Markdown, CSV, pictures, and one page that opens without a network."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from zoo.comparison.pictures import draw_pictures
from zoo.comparison.results import StudyResults
from zoo.comparison.study import BASELINE
from zoo.comparison.summary import CellSummary, Summary
from zoo.comparison.tables import EXPLANATION, HEADER, format_csv, format_markdown, row
from zoo.serialization import write_atomically

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto; max-width: 112rem;
  padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { border-bottom: 1px solid #d0d0d0; padding: .35rem .6rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
thead th { border-bottom: 2px solid #555; vertical-align: bottom; }
th button { font: inherit; font-weight: 600; border: 0; padding: 0; background: none; color: #0b4f9e; cursor: pointer;
  text-align: inherit; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
tbody th { font-weight: 600; } tr.plain { background: #f4f4f4; }
td { white-space: nowrap; } td:nth-child(2), td:nth-child(7), td:last-child { white-space: normal; }
td:nth-child(7) { min-width: 5rem; } td:last-child { min-width: 16rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; border: 1px solid #e0e0e0; }
.note { color: #444; font-size: .85rem; }
"""

SCRIPT = """
const table = document.querySelector("table");
function sortBy(column, descending) {
  const body = table.tBodies[0];
  const key = (line) => {
    const value = line.cells[column].dataset.value;
    return value === undefined ? line.cells[column].textContent : Number(value);
  };
  const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b);
  const known = [...body.rows].filter((line) => !Number.isNaN(key(line)));
  const unknown = [...body.rows].filter((line) => Number.isNaN(key(line)));
  known.sort((a, b) => (descending ? -1 : 1) * compare(key(a), key(b)));
  body.append(...known, ...unknown);
  [...table.tHead.rows[0].cells].forEach((head, i) =>
    head.setAttribute("aria-sort", i !== column ? "none" : descending ? "descending" : "ascending"));
}
[...table.tHead.rows[0].cells].forEach((head, column) => head.querySelector("button").addEventListener("click", () =>
  sortBy(column, head.getAttribute("aria-sort") !== "descending")));
const wanted = /^#sort=(\\d+)(,ascending)?$/.exec(location.hash);
if (wanted) sortBy(Number(wanted[1]), !wanted[2]);
"""


def write_report(results: StudyResults, summary: Summary, folder: Path | str) -> list[Path]:
    """Write the report of a study into a folder.

    Returns:
        ``report.html`` (everything in one file), ``summary.md``, ``summary.csv`` and the PNGs.
    """
    folder = Path(folder)
    pictures = draw_pictures(results, summary, folder)
    texts = {
        "report.html": format_page(summary, pictures),
        "summary.md": format_markdown(summary),
        "summary.csv": format_csv(summary),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [*(folder / name for name in texts), *pictures.values()]


def format_page(summary: Summary, pictures: dict[str, Path]) -> str:
    """Return the page: the sentences, the table whose columns sort, the pictures, where it comes from."""
    sentences = [
        f"<li><b>{html.escape(cell.cell)}</b>: {html.escape(cell.comparison.verdict)}</li>"
        for cell in summary.cells
        if cell.comparison is not None
    ]
    figures = [
        f"<figure><figcaption>{html.escape(what)}</figcaption>"
        f'<img alt="{html.escape(f"{what}: {_alternative(summary)}")}" src="{_as_data(path)}"></figure>'
        for what, path in pictures.items()
    ]
    title = html.escape(f"Study {summary.name}")
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>",
        _paragraphs(summary.remarks),
        "<h2>What it shows</h2><ul>",
        *sentences,
        "</ul><h2>Table</h2>",
        f'<div class="wide">{_table(summary.cells)}</div>',
        _paragraphs([f"A click on a heading sorts. {EXPLANATION}"]),
        "<h2>Pictures</h2>",
        *figures,
        "<h2>Where it comes from</h2>",
        _paragraphs(summary.provenance),
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _paragraphs(lines: Sequence[str]) -> str:
    return "\n".join(f'<p class="note">{html.escape(line)}</p>' for line in lines)


def _alternative(summary: Summary) -> str:
    best = max(summary.cells, key=lambda cell: cell.top1.mean)
    return f"{len(summary.cells)} nets; the highest test accuracy is {100 * best.top1.mean:.2f} % of {best.cell}"


def _as_data(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _table(cells: Sequence[CellSummary]) -> str:
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{html.escape(name)}</button></th>' for name in HEADER
    )
    lines = []
    for cell in cells:
        first, *texts = row(cell)
        fields = [f'<th scope="row">{html.escape(first)}</th>']
        for text, value in zip(texts, _sort_values(cell)[1:], strict=True):
            sort_by = "" if value is None else f' data-value="{value!r}"'
            lines_of_text = html.escape(text).replace(" (", "<br>(").replace(" [", "<br>[")
            fields.append(f"<td{sort_by}>{lines_of_text}</td>")
        kind = ' class="plain"' if cell.attention == BASELINE else ""
        lines.append(f"<tr{kind}>{''.join(fields)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _sort_values(cell: CellSummary) -> list[float | None]:
    """Return what each column sorts by, ``None`` for its text; NaN is unknown and stays last."""
    unknown = float("nan")
    versus = cell.comparison
    costs = [
        unknown if cell.cost is None else float(cell.cost[column])
        for column in ("latency_ratio_batch1", "latency_ratio_batch64", "train_rate_ratio")
    ]
    return [
        None,
        float(len(cell.seeds)),
        cell.top1.mean,
        cell.last_top1.mean,
        unknown if versus is None else versus.difference.mean,
        unknown if versus is None or versus.adjusted_p is None else versus.adjusted_p,
        unknown if versus is None else min(versus.mcnemar.values()),
        float(cell.parameters),
        float(cell.macs),
        *costs,
        None,
    ]
