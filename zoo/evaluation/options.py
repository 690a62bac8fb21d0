"""The command line of ``evaluate.py``: weights, and data whose options default to those on the card."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from zoo.config import OWNED_DATA_ARGUMENTS, RunParser
from zoo.data import data_registry, list_caption_data, list_data
from zoo.evaluation.predictions import Precision
from zoo.pretrained import RUN_CARD, WeightCard, load_card


@dataclass(frozen=True)
class EvaluationOptions:
    """What to measure, on what, and how."""

    weights: str
    folder: str | None
    data_name: str
    data_options: dict[str, Any]
    split: Literal["val", "test", "held_out"]
    device: Literal["auto", "cpu", "cuda"]
    precision: Precision
    num_threads: int | None
    latency_batch_sizes: list[int]
    output: Path | None


def parse_evaluation_options(arguments: Sequence[str] | None = None) -> EvaluationOptions:
    """Read the command line; a wrong word ends the program with status 2 and a line that names it."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # The card decides which data options exist and what they default to, so it is read before the rest is parsed.
    first = argparse.ArgumentParser(prog="evaluate.py", add_help=False, allow_abbrev=False)
    first.add_argument("--weights")
    first.add_argument("--folder")
    first.add_argument("--data.name", dest="data_name")
    named, _ = first.parse_known_args(arguments)
    parser = create_evaluation_parser()
    if named.weights is None:
        parser.parse_args(arguments)  # help, or what is wrong
    try:
        card = load_card(named.weights, folder=named.folder)
        parser = create_evaluation_parser(card, named.data_name or card.data["name"])
    except (ValueError, OSError) as error:
        parser.error(str(error))
    parsed = parser.parse_args(arguments)
    data_options = parsed.data.as_dict()
    return EvaluationOptions(
        weights=parsed.weights,
        folder=parsed.folder,
        data_name=data_options.pop("name"),
        data_options=data_options,
        split=parsed.split,
        device=parsed.device,
        precision=parsed.precision,
        num_threads=parsed.num_threads,
        latency_batch_sizes=parsed.latency_batch_sizes,
        output=_output_file(parsed.output, card),
    )


def _output_file(output: str | None, card: WeightCard) -> Path | None:
    """Return where the JSON goes: where it is asked to, else into the run folder, if the weights are a run's."""
    if output is not None:
        return Path(output)
    if card.path is not None and card.path.name == RUN_CARD:
        return card.path.with_name("evaluation.json")
    return None


def create_evaluation_parser(card: WeightCard | None = None, data_name: str | None = None) -> RunParser:
    """Build the command line for a card and the name of the data; without them, for ``--help``.

    Raises:
        ValueError: The data set is not registered.
    """
    parser = RunParser(
        prog="evaluate.py",
        description="Measure trained weights on images: accuracy, calibration, cost, latency, memory. "
        "With --weights, --help lists the options of the data too.",
        parser_mode="strict_yaml",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--weights", type=str, required=True, help="A name, a card, a safetensors file or a run folder."
    )
    parser.add_argument("--folder", type=str | None, default=None, help="Where to look names up instead of weights/.")
    splits = Literal["val", "test", "held_out"]
    parser.add_argument("--split", type=splits, default="test", help="Which images; held_out: of caption_scenes alone.")
    parser.add_argument("--device", type=Literal["auto", "cpu", "cuda"], default="auto", help="Where to compute.")
    parser.add_argument("--precision", type=Precision, default="fp32", help="What the accuracies are computed in.")
    parser.add_argument("--num_threads", type=int | None, default=None, help="Threads on the CPU; torch's own choice.")
    parser.add_argument("--latency_batch_sizes", type=list[int], default=[1, 64], help="Batch sizes to time.")
    parser.add_argument("--output", type=str | None, default=None, help="JSON file; evaluation.json of a run folder.")
    known = ", ".join([*list_data(), *list_caption_data()])
    parser.add_argument("--data.name", type=str, default=data_name, help=f"One of {known}; the card's by default.")
    if card is not None and data_name is not None:
        parser.add_class_arguments(
            data_registry(data_name)[data_name], "data", skip=OWNED_DATA_ARGUMENTS, instantiate=False
        )
        if data_name == card.data["name"]:
            parser.set_defaults({f"data.{name}": value for name, value in card.data.get("options", {}).items()})
    return parser
