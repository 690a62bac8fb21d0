"""``zoo describe``: what a model is made of and costs, before it is trained; or what trained weights are."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from zoo.cli.tables import format_options, print_tables

SUMMARY = "Show parameters, MACs and the gates of a model, or the card of weights."
SCORES = {"top1": "top-1", "exact_match": "exact match"}
MODEL_ARGUMENTS: dict[str, Any] = {
    "attention": None,
    "attention_stages": None,
    "num_classes": None,
    "in_channels": 3,
    "stem": None,
    "input_size": None,
    "attention_option": [],
    "model_option": [],
}
"""Options about a model to be made, and their defaults."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", help="a model's name, see zoo list models; or weights: a name, card or run folder")
    parser.add_argument("--attention", help="an attention's name, or none for no gate anywhere")
    parser.add_argument("--attention-stages", type=int, nargs="+", metavar="STAGE", help="only in these stages, from 1")
    parser.add_argument("--num-classes", type=int, help="number of logits; the family's own by default")
    parser.add_argument("--in-channels", type=int, default=3, help="channels of an image, 3 by default")
    parser.add_argument("--stem", help="cifar or imagenet; the family's own by default")
    parser.add_argument(
        "--input-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="what the model is made for by default"
    )
    parser.add_argument("--attention-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--model-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--folder", help="where to look for weights, instead of those that come with the zoo")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Build the model, measure it, print the result."""
    import zoo
    from zoo.evaluation.complexity import describe_model

    if names_weights(arguments.model, arguments.folder):
        return describe_weights(arguments)
    if arguments.folder is not None:
        raise ValueError(f"--folder has no effect: {arguments.model!r} is no name of weights")
    model = zoo.create_model(
        arguments.model,
        attention=arguments.attention,
        attention_args=parse_options(arguments.attention_option) or None,
        attention_stages=arguments.attention_stages,
        num_classes=arguments.num_classes,
        in_channels=arguments.in_channels,
        stem=arguments.stem,
        **parse_options(arguments.model_option),
    )
    height, width = arguments.input_size or model.image_size
    description = describe_model(model, (arguments.in_channels, height, width))
    if arguments.json:
        print(json.dumps({"model": model.config, **dataclasses.asdict(description)}, indent=2))
    else:
        _print(model.config, description)
    return 0


def names_weights(name: str, folder: str | None) -> bool:
    """Tell a name, card, file or run folder of weights from the name of a model."""
    from zoo.pretrained import list_weights
    from zoo.registry import MODELS

    if name in MODELS:
        return False
    return name in list_weights(folder) or Path(name).suffix in {".yaml", ".safetensors"} or Path(name).is_dir()


def describe_weights(arguments: argparse.Namespace) -> int:
    """Print what a card says: what made the weights, how good they are, how images are prepared, what they cost."""
    from zoo.evaluation.complexity import describe_model
    from zoo.models.captioner import Captioner, with_fixed_words
    from zoo.preprocessing import Preprocessing
    from zoo.pretrained import load_card, load_pretrained

    given = [name for name, default in MODEL_ARGUMENTS.items() if getattr(arguments, name) != default]
    if given:
        raise ValueError(f"--{given[0].replace('_', '-')} has no effect: {arguments.model} states its model itself")
    if arguments.json:
        print(json.dumps(load_card(arguments.model, folder=arguments.folder).to_dict(), indent=2))
        return 0
    model, card = load_pretrained(arguments.model, folder=arguments.folder)
    facts = {
        "model": card.model["name"],
        "data": f"{card.data['name']}, {card.data['split']}",
        "file": card.tensors["file"],
    }
    for epoch in ("selected_epoch", "last_epoch"):
        figures = card.metrics[epoch]
        stored = ", in the file" if card.metrics["stored"] == epoch else ""
        measured = {name: words for name, words in SCORES.items() if name in figures}
        shown = ", ".join(f"{100 * figures[name]:.2f} % {words}" for name, words in measured.items()) or "not measured"
        facts[f"{epoch.replace('_', ' ')}{stored}"] = shown
    commit = card.commit or {"id": "unknown"}
    what = "words" if isinstance(model, Captioner) else "classes"
    facts |= {
        what: ", ".join(card.class_names[:10]) + (", ..." if len(card.class_names) > 10 else ""),
        "images": Preprocessing.from_dict(card.preprocessing).describe(),
        "licence": card.licence,
        "source": card.source,
        "command": card.command or "unknown",
        "commit": str(commit["id"]),
        "sha256": card.tensors["sha256"],
    }
    _print({**facts, **card.model, "name": card.name}, describe_model(with_fixed_words(model), card.input_size))
    return 0


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` words; values are YAML, so numbers, true, null and lists are what they look like.

    Raises:
        ValueError: A word has no ``=``, or a name comes twice.

    >>> parse_options(["reduction_ratio=8", "pooling=[mean]"])
    {'reduction_ratio': 8, 'pooling': ['mean']}
    """
    from zoo.serialization import parse_yaml

    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"option {pair!r} must have the form NAME=VALUE")
        if name in options:
            raise ValueError(f"option {name!r} is given twice")
        options[name] = parse_yaml(value, source=f"option {name}")
    return options


def _print(config: dict[str, Any], description: Any) -> None:
    from rich.table import Table

    facts = Table("figure", "value", title=config["name"])
    for name, value in config.items():
        if name != "name" and value is not None:
            facts.add_row(name, escape(format_options(value) if isinstance(value, dict) else str(value)))
    facts.add_section()
    facts.add_row("input", " x ".join(map(str, description.input_size)))
    facts.add_row("parameters", f"{description.parameters:,}")
    facts.add_row("of them in gates", _share(description.attention_parameters, description.attention_parameter_share))
    facts.add_row("MACs per image (1 MAC = 2 FLOPs)", f"{description.macs:,}")
    facts.add_row("of them in gates", _share(description.attention_macs, description.attention_mac_share))
    if not description.gates:
        print_tables(facts)
        return
    gates = Table("gate", "kind", "stage", "channels", "hidden", "map", "parameters", "MACs", title="gates")
    for gate in description.gates:
        gates.add_row(
            gate.name,
            gate.kind,
            "-" if gate.stage is None else str(gate.stage),
            str(gate.channels),
            "-" if gate.hidden_channels is None else str(gate.hidden_channels),
            f"{gate.height} x {gate.width}",
            f"{gate.parameters:,}",
            f"{gate.macs:,}",
        )
    print_tables(facts, gates)


def _share(count: int, share: float) -> str:
    return f"{count:,} ({100 * share:.2f} %)"
