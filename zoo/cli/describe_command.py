"""``zoo describe``: what a model is made of and costs, before it is trained."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from zoo.cli.tables import format_options, print_tables

SUMMARY = "Show parameters, MACs and the gates of a model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("model", help="a model's name, see zoo list models")
    parser.add_argument("--attention", help="an attention's name, or none for no gate anywhere")
    parser.add_argument("--attention-stages", type=int, nargs="+", metavar="STAGE", help="only in these stages, from 1")
    parser.add_argument("--num-classes", type=int, help="number of logits; the family's own by default")
    parser.add_argument("--in-channels", type=int, default=3, help="channels of an image, 3 by default")
    parser.add_argument("--stem", help="cifar or imagenet; the family's own by default")
    parser.add_argument(
        "--input-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="32 32 or 224 224 by default, as the stem"
    )
    parser.add_argument("--attention-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--model-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Build the model, measure it, print the result."""
    import zoo
    from zoo.evaluation.complexity import describe_model

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
    side = 32 if model.config["stem"] == "cifar" else 224
    height, width = arguments.input_size or (side, side)
    description = describe_model(model, (arguments.in_channels, height, width))
    if arguments.json:
        print(json.dumps({"model": model.config, **dataclasses.asdict(description)}, indent=2))
    else:
        _print(model.config, description)
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
