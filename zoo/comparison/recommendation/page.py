"""A recommendation as one HTML page that needs nothing else: tables, intervals as a picture, examples of the images."""

import base64
import html
import io
from collections.abc import Iterable, Sequence

import torch
from PIL import Image
from torch import Tensor

from zoo.comparison.recommendation.answer import Examples, Recommendation
from zoo.comparison.recommendation.data_measures import SIDE, to_measured_size
from zoo.comparison.recommendation.decision import Contrast
from zoo.comparison.recommendation.trials import PLAIN
from zoo.comparison.recommendation.words import headline, next_command, points, ratio_words

_NUM_EXAMPLES = 8
_PLOT_WIDTH, _ROW_HEIGHT, _LABEL_WIDTH = 720, 34, 150
_COLOURS = {
    "gain": "#1a7f4b",
    "gain, perhaps too small": "#8a6d1b",
    "loss": "#b3372f",
    "no gain worth its price": "#555555",
    "open": "#8a6d1b",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2430; }
h1 { font-size: 1.6rem; margin-bottom: 0.3rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; }
th { border-bottom: 2px solid #ccd2da; } td { border-bottom: 1px solid #e6e9ee; } .number { text-align: right; }
.reason { color: #444c58; } .yes { color: #1a7f4b; font-weight: 600; } .no { color: #68707c; }
figure { display: inline-block; margin: 0 0.6rem 0.6rem 0; } figcaption { font-size: 0.75rem; color: #68707c; }
img { image-rendering: pixelated; border-radius: 4px; } pre { background: #f3f5f8; padding: 0.8rem; overflow-x: auto; }
"""


def format_page(answer: Recommendation) -> str:
    """Return the page."""
    title = headline(answer.decision)
    asked = f"{answer.request.model.title} on {answer.request.data.title}"
    parts = [
        f"<h1>{_escape(title)}</h1>",
        f'<p class="reason">{_escape(answer.decision.reason)}</p>',
        f"<p>{_escape(asked)}; {answer.used_minutes:.1f} of {answer.request.budget_minutes:g} minutes used.</p>",
        _section("Differences on held-out images", _differences(answer)),
        _section("Price beside the plain net", _prices(answer)),
        _section("Does the net spend itself on the wrong places?", _signs(answer)),
        _section("Examples", _examples(answer.examples)) if answer.examples else "",
        _section("Accuracy", _accuracies(answer)) if answer.test else "",
        _section("How this was found", _method(answer)),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n'
        "</body>\n</html>\n"
    )


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def _section(title: str, content: str) -> str:
    return f"<h2>{_escape(title)}</h2>\n{content}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 1) -> str:
    """Return a table; columns from ``numbers_from`` on are set to the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="number"' if column >= numbers_from else "" for column in range(len(cells))]
        filled = (f"<{tag}{mark}>{_escape(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
        return f"<tr>{''.join(filled)}</tr>"

    return "<table>\n" + "\n".join([line(header, "th"), *(line(row, "td") for row in rows)]) + "\n</table>"


def _differences(answer: Recommendation) -> str:
    notes = "".join(f"<p>{_escape(reason)}.</p>" for reason in answer.refused.values())
    if not answer.contrasts:
        return notes or "<p>None was measured.</p>"
    sentences = "".join(f"<li>{_escape(contrast.sentence())}</li>" for contrast in answer.contrasts)
    return f"{interval_plot(answer.contrasts, answer.request.margin)}\n<ul>{sentences}</ul>\n{notes}"


def interval_plot(contrasts: Sequence[Contrast], margin: float) -> str:
    """Return an SVG of the intervals in percentage points, with zero and the margin marked."""
    ends = [value for contrast in contrasts for value in (contrast.interval.low, contrast.interval.high)]
    low, high = min([*ends, -margin]), max([*ends, margin])
    pad = 0.08 * (high - low)
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return _LABEL_WIDTH + (_PLOT_WIDTH - _LABEL_WIDTH) * (value - low) / (high - low)

    height = _ROW_HEIGHT * (len(contrasts) + 1)
    band = f'x="{x(-margin):.1f}" y="0" width="{x(margin) - x(-margin):.1f}" height="{height - 24}"'
    marks = [
        f'<rect {band} fill="#eef1f5"/>',
        f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{height - 24}" stroke="#68707c"/>',
    ]
    for value in (low + pad, 0.0, high - pad):
        marks.append(
            f'<text x="{x(value):.1f}" y="{height - 8}" text-anchor="middle" font-size="12">{100 * value:+.1f}</text>'
        )
    for row, contrast in enumerate(contrasts):
        y = _ROW_HEIGHT * (row + 0.5)
        found, colour = contrast.interval, _COLOURS[contrast.verdict]
        marks += [
            f'<text x="0" y="{y + 5:.1f}" font-size="14">{_escape(contrast.net)} - {_escape(contrast.base)}</text>',
            f'<line x1="{x(found.low):.1f}" x2="{x(found.high):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-width="3"/>',
            f'<circle cx="{x(found.mean):.1f}" cy="{y:.1f}" r="6" fill="{colour}"/>',
        ]
    label = "Differences in percentage points with their intervals; the grey band is too small to be worth a price"
    return (
        f'<svg viewBox="0 0 {_PLOT_WIDTH} {height}" width="100%" role="img" aria-label="{label}">\n'
        + "\n".join(marks)
        + f'\n</svg>\n<p class="no">{label}.</p>'
    )


def _prices(answer: Recommendation) -> str:
    header = ["net", "time per image", "time per training step", "parameters", "MACs"]
    rows = [
        [
            net,
            f"{price.latency_ms:.2f} ms" if net == PLAIN else ratio_words(price.latency),
            f"{price.step_ms:.0f} ms" if net == PLAIN else ratio_words(price.training),
            f"{price.parameters:,}",
            f"{price.macs:,}",
        ]
        for net, price in answer.prices.items()
    ]
    budget = answer.request.latency_budget_percent
    note = "" if budget is None else f"<p>At most {budget:g} % more time per image were allowed.</p>"
    return _table(header, rows) + note


def _signs(answer: Recommendation) -> str:
    if not answer.signs:
        return "<p>Not looked at: nothing was trained.</p>"
    items = (
        f'<li><span class="{"yes" if sign.holds else "no"}">{"yes" if sign.holds else "no"}</span> '
        f"{_escape(sign.sentence)}</li>"
        for sign in answer.signs
    )
    return f"<ul>{''.join(items)}</ul>"


def _accuracies(answer: Recommendation) -> str:
    test = {figure.net: figure for figure in answer.test}
    rows = [
        [net, str(len(values)), f"{100 * sum(values) / len(values):.2f} %", f"{100 * test[net].mean:.2f} %"]
        for net, values in answer.validation_top1.items()
    ]
    note = "<p>The last epoch of every run. The test images were read after the decision and have no part in it.</p>"
    return _table(["net", "seeds", "held-out images", "test images"], rows) + note


def _method(answer: Recommendation) -> str:
    parts = []
    if answer.plan is not None and answer.rule is not None:
        parts.append(f"<p>Runs of {answer.plan.epochs} epochs. {_escape(answer.rule.describe())}</p>")
        worth = points(answer.request.margin)
        parts.append(f"<p>A gain of {worth} points is the smallest that counts as worth a price.</p>")
    parts.append(f"<pre>{_escape(answer.data_text)}</pre>")
    parts.append(f"<pre>{_escape(chr(10).join(next_command(answer)))}</pre>")
    return "\n".join(parts)


def _examples(examples: Examples) -> str:
    """Show some images, evenly spaced, each with its object-like region and the net's gradient."""
    count = len(examples.saliency.maps)
    chosen = torch.linspace(0, count - 1, min(_NUM_EXAMPLES, count)).round().long()
    # The gradient is measured on an even sample of the images.
    shown = torch.linspace(0, len(examples.images.labels) - 1, count).round().long()[chosen]
    pixels = to_measured_size(examples.images.pixels[shown])
    region = examples.measures.region[shown]
    maps = examples.saliency.maps[chosen]
    maps = maps / maps.amax(dim=(1, 2), keepdim=True)
    tiles = torch.cat([pixels, _dimmed(pixels, region.float()), _dimmed(pixels, maps)], dim=3)
    figures = "".join(
        f'<figure><img src="{_png(tile)}" width="{3 * 96}" height="96" alt=""></figure>' for tile in tiles
    )
    return f"{figures}<p>Each: the image, its object-like region, where the plain net's gradient lies.</p>"


def _dimmed(pixels: Tensor, weights: Tensor) -> Tensor:
    return pixels * (0.15 + 0.85 * weights.unsqueeze(1))


def _png(pixels: Tensor) -> str:
    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    assert values.shape[0] == SIDE
    file = io.BytesIO()
    Image.fromarray(values).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
