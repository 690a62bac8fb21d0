"""An explanation as one HTML page that needs nothing else."""

import base64
import html
from collections.abc import Sequence

from zoo.explain.drawing.sheet import Section, as_png, headline
from zoo.explain.drawing.trust_panels import HEADER, figures, table_rows
from zoo.explain.explanation import Explanation
from zoo.explain.trust.conclusions import conclude

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto; max-width: 88rem;
  padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 0.2rem; }
img { max-width: 100%; height: auto; } .note { color: #444; font-size: .9rem; margin: 0 0 .5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { border-bottom: 1px solid #d0d0d0; padding: .35rem .7rem; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #555; } .conclusions { background: #f4f6f4; padding: .6rem 1rem .6rem 2rem; }
"""


def format_page(explanation: Explanation, sections: Sequence[Section]) -> str:
    """Return the page: what the sheet shows, with tables and sentences as text."""
    parts = []
    if explanation.trust is not None:
        sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in conclude(explanation.trust))
        parts.append(f'<h2>What this allows one to conclude</h2><ul class="conclusions">{sentences}</ul>')
    parts += [format_section(section) for section in sections]
    if explanation.trust is not None:
        header = [name.replace("\n", " ") for name in HEADER]
        parts.append(format_table(header, table_rows(explanation.trust)))
    parts.append("".join(f'<p class="note">{html.escape(line)}</p>' for line in figures(explanation)))
    if explanation.concentrations:
        parts.append(f"<h2>Weights of the attention</h2>{_concentrations(explanation)}")
    return format_document(headline(explanation), parts)


def format_document(title: str, parts: Sequence[str]) -> str:
    """Return a whole HTML document of finished parts."""
    escaped = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped}</title><style>{STYLE}</style></head>\n<body><h1>{escaped}</h1>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def format_section(section: Section, *, level: int = 2) -> str:
    """Return heading, note and picture of a section, the heading being of a level."""
    data = base64.b64encode(as_png(section.picture)).decode("ascii")
    note = f'<p class="note">{html.escape(section.note)}</p>' if section.note else ""
    alternative = html.escape(f"{section.title}. {section.note}", quote=True)
    title = html.escape(section.title)
    return f'<h{level}>{title}</h{level}>{note}<img alt="{alternative}" src="data:image/png;base64,{data}">'


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _concentrations(explanation: Explanation) -> str:
    rows = [
        [found.name, f"{found.entropy:.3f}", f"{100 * found.largest:.2f} %", f"{100 / found.num_weights:.2f} %"]
        for found in explanation.concentrations
    ]
    return format_table(["weights of", "evenness (entropy, 1 is even)", "largest share", "share if even"], rows)
