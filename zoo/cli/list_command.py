"""``zoo list``: what there is, by name."""

import argparse
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

SUMMARY = "List attentions, models, data sets and weights."
KINDS = ("attention", "models", "data", "weights")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"any of {', '.join(KINDS)}; all by default")
    parser.add_argument("--folder", help="where to look for weights, instead of those that come with the zoo")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Print the lists; the status is 1 when weights among them are not what their card says."""
    from zoo.registry import suggest

    for kind in arguments.kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}.{suggest(kind, list(KINDS))} Known: {', '.join(KINDS)}")
    kinds = arguments.kinds or KINDS
    if arguments.folder is not None and "weights" not in kinds:
        raise ValueError("--folder has no effect without the kind weights")
    lists = {kind: collect(kind, arguments.folder) for kind in KINDS if kind in kinds}
    if arguments.json:
        print(json.dumps(lists, indent=2))
    else:
        _print(lists)
    return int(any(entry["file"] != "verified" for entry in lists.get("weights", [])))


def collect(kind: str, folder: str | None) -> list[dict[str, Any]]:
    """Return a record per name of one kind."""
    if kind == "weights":
        from zoo.pretrained import list_weights

        return [describe_weights(name, folder) for name in list_weights(folder)]
    from zoo import registry

    entries: Mapping[str, Callable[..., Any]] = {
        "attention": registry.ATTENTION,
        "models": registry.MODELS,
        "data": registry.DATASETS,
    }[kind]
    return [
        {"name": name, "summary": summarize(entry), "options": list_options(entry)} for name, entry in entries.items()
    ]


def summarize(entry: Callable[..., Any]) -> str:
    """Return the first sentence of a docstring, on one line and without its markup."""
    paragraph = " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())
    return paragraph.replace("``", "")


def list_options(entry: Callable[..., Any]) -> list[str]:
    """Return the keyword arguments a person may set."""
    given_by_the_zoo = {"channels", "attention", "attention_stages", "shuffle_seed", "class_names"}
    return [name for name in inspect.signature(entry).parameters if name not in given_by_the_zoo]


def describe_weights(name: str, folder: str | None) -> dict[str, Any]:
    """Return the main facts of a card, and whether its file has the card's SHA-256."""
    from zoo.pretrained import load_card

    try:
        card = load_card(name, folder=folder)
    except ValueError as error:
        return {"name": name, "file": f"unusable card: {error}"}
    assert card.path is not None
    path = card.path.with_name(card.tensors["file"])
    if not path.is_file():
        state = "file missing"
    else:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        state = "verified" if digest == card.tensors["sha256"] else "WRONG SHA-256"
    return {
        "name": name,
        "model": card.model["name"],
        "attention": card.model.get("attention"),
        "data": card.data["name"],
        "split": card.data["split"],
        "top1": card.claim.get("top1"),
        "epoch": card.metrics["stored"],
        "parameters": card.tensors["num_parameters"],
        "licence": card.licence,
        "file": state,
    }


def _print(lists: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table

    from zoo.cli.main import print_tables

    tables = []
    for kind, entries in lists.items():
        if kind == "weights":
            table = Table("name", "attention", "data", "top-1", "of the", "parameters", "file", title=kind)
            for entry in entries:
                table.add_row(*_weights_row(entry))
        else:
            table = Table("name", "what it is", "options", title=kind)
            for entry in entries:
                table.add_row(entry["name"], entry["summary"], ", ".join(entry["options"]))
        tables.append(table)
    print_tables(*tables)


def _weights_row(entry: dict[str, Any]) -> list[str]:
    if "model" not in entry:
        return [entry["name"], "", "", "", "", "", entry["file"]]
    top1 = "n/a" if entry["top1"] is None else f"{100 * entry['top1']:.2f} %"
    return [
        entry["name"],
        entry["attention"] or "-",
        f"{entry['data']}, {entry['split']}",
        top1,
        entry["epoch"].replace("_", " "),
        f"{entry['parameters']:,}",
        entry["file"],
    ]
