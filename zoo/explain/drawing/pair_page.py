"""Two networks on many images, as one HTML page that needs nothing else."""

import html
import math
from collections.abc import Sequence

from zoo.explain.against import Pair, summarise
from zoo.explain.drawing.page import format_document, format_section, format_table
from zoo.explain.drawing.pair_sheet import draw_pair_sections, headline
from zoo.explain.drawing.sheet import Section
from zoo.explain.explanation import Explanation


def format_pair_page(pairs: Sequence[Pair], sections: Sequence[list[Section]] | None = None) -> str:
    """Return the page: sentences, a table with a row per image, and the pictures of each.

    Args:
        pairs: One per image, of the same two networks.
        sections: The pictures of each pair, where they are drawn already.
    """
    first, second = pairs[0].first.network, pairs[0].second.network
    sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in summarise(pairs))
    parts = [f'<ul class="conclusions">{sentences}</ul>', "<h2>Image by image</h2>", _table(pairs)]
    for pair, drawn in zip(pairs, sections or [draw_pair_sections(pair) for pair in pairs], strict=True):
        parts += [f"<h2>{html.escape(headline(pair))}</h2>", *(format_section(section, level=3) for section in drawn)]
    return format_document(f"{first} against {second}", parts)


def _table(pairs: Sequence[Pair]) -> str:
    first, second = pairs[0].first.network, pairs[0].second.network
    methods = pairs[0].methods
    titles = [f"agreement, {pairs[0].first.heatmaps[method].title}" for method in methods]
    leads = [f"lead, {each.network}" for each in (pairs[0].first, pairs[0].second)] if _has_trust(pairs) else []
    header = ["image", "true class", first, second, "explained", f"{first}, sure by", f"{second}, sure by", "wins"]
    rows = [
        [
            pair.title,
            pair.label or "unknown",
            *pair.answers,
            pair.first.class_name,
            *(f"{100 * share:.1f} %" for share in pair.certainties),
            {"first": first, "second": second, "neither": "neither", None: "unknown"}[pair.winner],
            *(_rank(pair.agreement(method)) for method in methods),
            *(_best_lead(each) for each in (pair.first, pair.second) if leads),
        ]
        for pair in pairs
    ]
    return format_table([*header, *titles, *leads], rows)


def _has_trust(pairs: Sequence[Pair]) -> bool:
    return all(each.trust is not None for pair in pairs for each in (pair.first, pair.second))


def _best_lead(explanation: Explanation) -> str:
    assert explanation.trust is not None
    best = max(explanation.trust.maps.values(), key=lambda found: found.curves.lead)
    return f"{best.curves.lead:+.2f} ({best.title})"


def _rank(value: float) -> str:
    return "even map" if math.isnan(value) else f"{value:+.2f}"
