"""``zoo list``: what there is, by name."""

import argparse
import hashlib
import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from rich.markup import escape

from zoo.cli.tables import format_options, print_tables

SUMMARY = "List attentions, models, captioners, data sets and weights."
KINDS = ("attention", "token_attention", "models", "captioners", "data", "caption_data", "weights")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"any of {', '.join(KINDS)}; all by default")
    parser.add_argument("--weights", action="store_true", help="the same as the kind weights")
    parser.add_argument("--folder", help="where to look for weights, instead of those that come with the zoo")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Print the lists; the status is 1 when weights among them are not what their card says."""
    from zoo.registry import suggest

    for kind in arguments.kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}.{suggest(kind, list(KINDS))} Known: {', '.join(KINDS)}")
    named = [*arguments.kinds, *(["weights"] if arguments.weights else [])]
    kinds = named or KINDS
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
    from zoo import registry

    if kind == "weights":
        from zoo.pretrained import list_weights

        return [describe_weights(name, folder) for name in list_weights(folder)]
    if kind == "models":
        return [describe_untrained(name) for name in registry.MODELS]
    if kind == "captioners":
        return [describe_captioner(name) for name in registry.CAPTIONERS]
    registries = {
        "attention": registry.ATTENTION,
        "token_attention": registry.TOKEN_ATTENTION,
        "data": registry.DATASETS,
        "caption_data": registry.CAPTION_DATASETS,
    }
    return [
        {"name": name, "summary": summarize(entry), "options": list_options(entry)}
        for name, entry in registries[kind].items()
    ]


def summarize(entry: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring, on one line and without its markup."""
    paragraph = " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:", "", paragraph).replace("`", "")


def list_options(entry: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword arguments a person may set, with their defaults; ``required`` for one without."""
    given_by_the_zoo = {"attention", "attention_stages", "shuffle_seed", "class_names", "max_words"}
    parameters = inspect.signature(entry).parameters.values()
    return {
        parameter.name: "required" if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in given_by_the_zoo
    }


def describe_untrained(name: str) -> dict[str, Any]:
    """Return size and cost of a model as published, without memory for its weights."""
    import torch

    from zoo.evaluation.complexity import count_macs, count_parameters
    from zoo.factory import create_model
    from zoo.registry import MODELS

    with torch.device("meta"):
        model = create_model(name)
    height, width = model.image_size
    return {
        "name": name,
        "input_size": [3, height, width],
        "num_classes": model.config["num_classes"],
        "parameters": count_parameters(model),
        "macs": count_macs(model, (3, height, width)),
        "options": list_options(MODELS[name]),
    }


def describe_captioner(name: str) -> dict[str, Any]:
    """Return what a captioner is and its options, those of the encoder first."""
    from zoo.factory import create_captioner
    from zoo.registry import CAPTIONERS

    of_encoder = {"encoder", "encoder_args"}
    options = {key: value for key, value in list_options(create_captioner).items() if key in of_encoder}
    own = {key: value for key, value in list_options(CAPTIONERS[name]).items() if key not in {"encoder", "num_classes"}}
    return {"name": name, "summary": summarize(CAPTIONERS[name]), "options": options | own}


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
        **({"exact_match": card.claim["exact_match"]} if "exact_match" in card.claim else {}),
        "epoch": card.metrics["stored"],
        "parameters": card.tensors["num_parameters"],
        "licence": card.licence,
        "file": state,
    }


def _print(lists: dict[str, list[dict[str, Any]]]) -> None:
    from rich.table import Table

    columns = {
        "attention": ("name", "what it is", "options and their defaults"),
        "token_attention": ("name", "what it is", "options and their defaults"),
        "models": ("name", "input", "classes", "parameters", "MACs", "options and their defaults"),
        "captioners": ("name", "what it is", "options and their defaults"),
        "data": ("name", "what it is", "options and their defaults"),
        "caption_data": ("name", "what it is", "options and their defaults"),
        "weights": ("name", "attention", "data", "top-1", "of the", "parameters", "file"),
    }
    rows = {
        "attention": _summary_row,
        "token_attention": _summary_row,
        "models": _model_row,
        "captioners": _summary_row,
        "data": _summary_row,
        "caption_data": _summary_row,
        "weights": _weights_row,
    }
    tables: list[Table | str] = []
    for kind, entries in lists.items():
        if not entries:
            tables.append(f"{kind}: none")
            continue
        table = Table(*columns[kind], title=kind, title_justify="left", show_lines="data" in kind)
        for entry in entries:
            table.add_row(*map(escape, rows[kind](entry)))
        tables.append(table)
    print_tables(*tables)


def _summary_row(entry: dict[str, Any]) -> list[str]:
    return [entry["name"], entry["summary"], format_options(entry["options"])]


def _model_row(entry: dict[str, Any]) -> list[str]:
    in_other_columns = {"in_channels", "num_classes"}
    return [
        entry["name"],
        " x ".join(map(str, entry["input_size"])),
        str(entry["num_classes"]),
        f"{entry['parameters']:,}",
        f"{entry['macs']:,}",
        format_options({name: value for name, value in entry["options"].items() if name not in in_other_columns}),
    ]


def _weights_row(entry: dict[str, Any]) -> list[str]:
    if "model" not in entry:
        return [entry["name"], "", "", "", "", "", entry["file"]]
    top1 = "n/a" if entry["top1"] is None else f"{100 * entry['top1']:.2f} %"
    if "exact_match" in entry:
        top1 = f"{100 * entry['exact_match']:.2f} % exact match"
    return [
        entry["name"],
        entry["attention"] or "-",
        f"{entry['data']}, {entry['split']}",
        top1,
        entry["epoch"].replace("_", " "),
        f"{entry['parameters']:,}",
        entry["file"],
    ]
