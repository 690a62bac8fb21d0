"""``zoo verify``: whether weights are what their cards say."""

import argparse
import json

from rich.markup import escape

from zoo.cli.tables import print_tables

SUMMARY = "Check weights against their cards: digest, names, counts, MACs, logits, and accuracy."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("weights", nargs="*", help="names, cards, files or run folders; all that come with the zoo")
    parser.add_argument("--folder", help="where to look names up, and whose weights are checked when none is named")
    parser.add_argument("--accuracy", action="store_true", help="measure the accuracy too, on the data of the card")
    parser.add_argument(
        "--data-option", action="append", default=[], metavar="NAME=VALUE", help="such as root=FOLDER; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Print every check; the status is 1 when one fails."""
    from rich.table import Table

    from zoo.cli.describe_command import parse_options
    from zoo.evaluation.verification import verify_weights
    from zoo.pretrained import list_weights

    if arguments.data_option and not arguments.accuracy:
        raise ValueError("--data-option has no effect without --accuracy")
    names = arguments.weights or list_weights(arguments.folder)
    if not names:
        raise ValueError("there are no weights to verify")
    data_options = parse_options(arguments.data_option)
    results = {
        name: verify_weights(name, folder=arguments.folder, accuracy=arguments.accuracy, data_options=data_options)
        for name in names
    }
    if arguments.json:
        print(json.dumps({name: [check._asdict() for check in checks] for name, checks in results.items()}, indent=2))
    else:
        table = Table("weights", "check", "result", "what was found")
        for name, checks in results.items():
            for check in checks:
                result = {True: "ok", False: "WRONG", None: "-"}[check.passed]
                table.add_row(escape(name) if check is checks[0] else "", check.name, result, escape(check.detail))
            table.add_section()
        print_tables(table)
    return int(any(check.passed is False for checks in results.values() for check in checks))
