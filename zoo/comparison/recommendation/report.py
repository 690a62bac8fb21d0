"""A recommendation as text for a terminal and as plain values for JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.comparison.recommendation.answer import Recommendation
from zoo.comparison.recommendation.decision import Contrast
from zoo.comparison.recommendation.page import format_page
from zoo.comparison.recommendation.trials import PLAIN
from zoo.comparison.recommendation.words import headline, next_command, points, price_words
from zoo.provenance import code_digest, describe_commit, describe_hardware, describe_versions
from zoo.serialization import write_atomically

JSON_FILE = "recommendation.json"
PAGE_FILE = "recommendation.html"


def write_recommendation(answer: Recommendation, folder: Path) -> tuple[Path, Path]:
    """Write the JSON and the page into a folder; return their paths."""
    values = to_dict(answer)
    paths = folder / JSON_FILE, folder / PAGE_FILE
    write_atomically(paths[0], json.dumps(values, indent=2) + "\n")
    write_atomically(paths[1], format_page(answer))
    return paths


def to_dict(answer: Recommendation) -> dict[str, Any]:
    """Return everything but the pictures as plain values; accuracies are fractions."""
    return {
        "recommendation": None if answer.decision.confidence == "nothing learned" else answer.decision.net,
        "confidence": answer.decision.confidence,
        "headline": headline(answer.decision),
        "reason": answer.decision.reason,
        "request": answer.request.to_dict(),
        "data": {"description": answer.data_text, "held_out": asdict(answer.summary)},
        "signs_for_a_spatial_gate": [asdict(sign) for sign in answer.signs],
        "price": {net: asdict(price) for net, price in answer.prices.items()},
        "not_tried": dict(answer.refused),
        "runs": None if answer.plan is None else asdict(answer.plan),
        "rule": None
        if answer.rule is None
        else {"statement": answer.rule.describe(), "level": answer.rule.level, **asdict(answer.rule)},
        "differences": [_difference(contrast) for contrast in answer.contrasts],
        "validation_top1": {net: list(values) for net, values in answer.validation_top1.items()},
        "test_top1_read_after_the_decision": {figure.net: list(figure.top1) for figure in answer.test},
        "minutes": round(answer.used_minutes, 2),
        "hardware": describe_hardware(),
        "versions": describe_versions(),
        "commit": describe_commit(),
        "code_digest": code_digest(),
    }


def _difference(contrast: Contrast) -> dict[str, Any]:
    return {
        "net": contrast.net,
        "base": contrast.base,
        **asdict(contrast.interval),
        "verdict": contrast.verdict,
        "seeds_needed": contrast.seeds_needed,
        "sentence": contrast.sentence(),
    }


def format_text(answer: Recommendation) -> str:
    """Return the recommendation with its evidence, cost and confidence as lines of text."""
    lines = [headline(answer.decision), f"  {answer.decision.reason}", "", "Differences on held-out images:"]
    lines += [f"  {contrast.sentence()}" for contrast in answer.contrasts] or ["  none was measured"]
    lines += [f"  {reason}" for reason in answer.refused.values()]
    lines += ["", "Price beside the plain net (median of rounds, and their range):"]
    lines += [f"  {net}: {price_words(price)}" for net, price in answer.prices.items() if net != PLAIN]
    lines += ["", "Does the net spend itself on the wrong places?"]
    lines += [f"  {'yes' if sign.holds else 'no '}  {sign.sentence}" for sign in answer.signs] or ["  not looked at"]
    if answer.test:
        lines += ["", "Test images, read after the decision, last epoch:"]
        lines += [
            f"  {figure.net}: {100 * figure.mean:.2f} %, mean of {len(figure.top1)} seeds" for figure in answer.test
        ]
    if answer.rule is not None and answer.plan is not None:
        lines += ["", f"Runs of {answer.plan.epochs} epochs. {answer.rule.describe()}"]
        lines.append(f"A gain of {points(answer.request.margin)} points is the smallest that counts as worth a price.")
    minutes = f"{answer.used_minutes:.1f} of {answer.request.budget_minutes:g} minutes used."
    return "\n".join([*lines, "", minutes, *next_command(answer)])
