"""``zoo convert``: weights of others as safetensors with a card."""

import argparse
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from zoo.cli.describe_command import parse_options

SUMMARY = "Write weights of others as a safetensors file under our names, with a card."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("source", help="a file, an http address, timm:NAME, torchvision:NAME or hf:OWNER/NAME")
    parser.add_argument("--model", required=True, help="our model for it, see zoo list models")
    parser.add_argument("--attention", help="the attention of the model")
    parser.add_argument("--attention-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--model-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--data", required=True, metavar="NAME", help="what it was trained on, see zoo list data")
    parser.add_argument("--data-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--class-names", metavar="FILE", help="one name per line, in the order of the logits")
    parser.add_argument("--preprocessing", metavar="PRESET", help="how images are prepared; the publisher's by default")
    parser.add_argument("--mean", type=float, nargs=3, metavar=("R", "G", "B"), help="in place of the preset's")
    parser.add_argument("--std", type=float, nargs=3, metavar=("R", "G", "B"), help="in place of the preset's")
    parser.add_argument("--licence", help="SPDX name; the publisher's by default")
    parser.add_argument("--made-by", help="who made the weights, and where they are from; the source by default")
    parser.add_argument("--measure", action="store_true", help="measure the accuracy on the test images for the card")
    parser.add_argument("--output", metavar="CARD", help="MODEL_ATTENTION.DATA.yaml in this folder by default")


def run(arguments: argparse.Namespace) -> int:
    """Write card and tensors, and print what became of every tensor."""
    from zoo.evaluation.complexity import count_macs, count_parameters
    from zoo.preprocessing import Preprocessing
    from zoo.pretrained.conversion import convert_weights
    from zoo.pretrained.reading import read_weights

    facts = read_weights(arguments.source).facts
    licence = arguments.licence or facts.get("licence")
    if not licence:
        raise ValueError(f"{arguments.source} states no licence: give it with --licence")
    preprocessing = Preprocessing.from_dict(choose_preprocessing(arguments, facts.get("preprocessing")))
    data_options = parse_options(arguments.data_option)
    class_names = read_class_names(arguments.class_names, arguments.data, data_options)
    attention = {"attention": arguments.attention, "attention_args": parse_options(arguments.attention_option) or None}
    model = {"name": arguments.model, **attention, **parse_options(arguments.model_option)}

    def measure(network: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        input_size = (preprocessing.channels, preprocessing.height, preprocessing.width)
        cost = {"parameters": count_parameters(network), "macs": count_macs(network, input_size)}
        metrics = measured(network) if arguments.measure else {}
        return metrics, cost

    measured = partial(
        measure_metrics, data=arguments.data, options=data_options, names=class_names, preprocessing=preprocessing
    )
    stated_options = {name: value for name, value in data_options.items() if name != "root"}
    card, report = convert_weights(
        arguments.source,
        arguments.output or default_card(arguments.model, arguments.attention, arguments.data),
        model={name: value for name, value in model.items() if value is not None},
        preprocessing=preprocessing,
        data={"name": arguments.data, "split": "test", "class_names": class_names, "options": stated_options},
        licence=licence,
        made_by=arguments.made_by or arguments.source,
        measure=measure,
        command=shlex.join(["zoo", *arguments.words]),
    )
    print(report.describe())
    print(f"Images: {preprocessing.describe()}")
    if "top1" in card.claim:
        print(f"Measured: {100 * card.claim['top1']:.2f} % of {card.claim['num_images']:,} images")
    print(f"Written: {card.path}")
    return 0


def default_card(model: str, attention: str | None, data: str) -> str:
    """Return the file name of a card.

    >>> default_card("resnet50", "se", "imagenet")
    'resnet50_se.imagenet.yaml'
    """
    return f"{model}{f'_{attention}' if attention else ''}.{data}.yaml"


def choose_preprocessing(arguments: argparse.Namespace, published: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how images are prepared: as asked for, else as the publisher says.

    Raises:
        ValueError: Nobody says it, or half of it; a wrong normalisation costs accuracy and shows nowhere else.
    """
    from zoo.preprocessing import PRESETS
    from zoo.registry import suggest

    if (arguments.mean is None) != (arguments.std is None):
        raise ValueError("--mean and --std go together")
    name = arguments.preprocessing
    if name is not None and name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}.{suggest(name, list(PRESETS))} Known: {', '.join(PRESETS)}")
    if name is None and published is None and arguments.mean is None:
        raise ValueError(
            f"{arguments.source} does not say how its images were prepared: give --preprocessing, "
            f"one of {', '.join(PRESETS)}, or --mean and --std"
        )
    preset = arguments.data if name is None and arguments.data in PRESETS else name or "imagenet_224"
    chosen = dict(published) if published is not None and name is None else PRESETS[preset].to_dict()
    if arguments.mean is not None:
        chosen |= {"mean": arguments.mean, "std": arguments.std}
    return chosen


def read_class_names(file: str | None, data: str, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the classes: from a file, ImageNet's own, or those of the data on this machine."""
    from zoo.data import create_data
    from zoo.registry import DATASETS

    if file is not None:
        return Path(file).read_text(encoding="utf-8").splitlines()
    if DATASETS[data].__name__ == "ImageNet" and "classes" not in options:
        from zoo.data.imagenet import read_class_table

        return list(read_class_table().values())
    try:
        return list(create_data(data, **options).class_names)
    except (ValueError, OSError) as error:
        raise ValueError(f"the class names are not known ({error}): give --class-names FILE") from None


def measure_metrics(
    network: Any, *, data: str, options: Mapping[str, Any], names: list[str], preprocessing: Any
) -> dict[str, Any]:
    """Return the single figures of a network on the test images."""
    from zoo.data import create_data
    from zoo.evaluation.accuracy import scalar_metrics
    from zoo.evaluation.verification import measure_accuracy

    return scalar_metrics(
        measure_accuracy(network, create_data(data, class_names=names, **options), preprocessing, "test")
    )
