"""The table of docs/captioning.md: what the captioners in weights/ write, from their cards."""

from collections.abc import Callable
from pathlib import Path

from zoo.evaluation.captions import BEAM_WIDTH
from zoo.pretrained import WeightCard, read_card
from zoo.registry import CAPTIONERS

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "Not measured yet."
FIGURES = {
    "exact_match": "exact match",
    "exact_match_beam": f"exact match, beam of {BEAM_WIDTH}",
    "bleu": "BLEU",
    "token_accuracy": "words right under teacher forcing",
    "grounding": "attention inside the boxes of what a word speaks of",
    "grounding_chance": "the same of an even gaze",
}


def captions_table() -> str:
    """Return a row per figure and a pair of columns per captioner: test images and held-out combinations."""
    cards = [read_card(path) for path in sorted((ROOT / "weights").glob("*.yaml"))]
    cards = [card for card in cards if card.model["name"] in CAPTIONERS]
    if not cards:
        return NOT_YET
    header = ["figure"]
    for card in cards:
        name = f"[`{card.name}`](../weights/{card.name}.yaml)"
        header += [f"{name}, seen combinations", "held-out combinations"]
    rows = [[f"images ({cards[0].data['name']})", *_in_columns(cards, "num_images", "{:,}")]]
    rows += [[words, *_in_columns(cards, name, "{:.2%}")] for name, words in FIGURES.items()]
    rows.append(["negative log-likelihood per word, nats", *_in_columns(cards, "nll", "{:.4f}")])
    lines = [header, [":--"] + ["--:"] * (len(header) - 1), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *(_origin(card) for card in cards)])


def _in_columns(cards: list[WeightCard], name: str, form: str) -> list[str]:
    keys = (name, f"held_out_{name}")
    return [form.format(card.claim[key]).replace("%", " %") for card in cards for key in keys]


def _origin(card: WeightCard) -> str:
    commit = card.commit["id"][:10] if card.commit else "unknown"
    cost, machine = card.cost, card.hardware["accelerator"] or card.hardware["processor"]
    return (
        f"`{card.name}`: {cost['parameters']:,} parameters, {cost['macs'] / 1e6:.1f} M MACs, epoch "
        f"{card.claim['epoch']} of {card.metrics['last_epoch']['epoch']}, {cost['train_seconds'] / 60:.1f} minutes of "
        f"training ({machine}), seed {card.seed}, commit {commit}."
    )


def tables() -> dict[str, Callable[[], str]]:
    """Return the tables by the name of their place in the document."""
    return {"captions": captions_table}
