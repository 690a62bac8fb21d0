"""``zoo explain``: what trained weights look at in images, how far to trust that, and two networks side by side."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import nn

    from zoo.explain import Explanation
    from zoo.preprocessing import Preprocessing
    from zoo.pretrained import WeightCard

    Network = tuple[nn.Module, WeightCard]

SUMMARY = "Show what weights look at in images, and how far to trust the pictures."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image file")
    parser.add_argument("--weights", required=True, help="a name (see zoo list weights), card, file or run folder")
    parser.add_argument(
        "--against", metavar="WEIGHTS", help="a second network, shown beside the first on the same images"
    )
    parser.add_argument("--folder", help="where to look the name up, instead of the weights that come with the zoo")
    parser.add_argument("--class", dest="class_name", metavar="NAME", help="what to explain; by default the answer")
    parser.add_argument("--methods", metavar="A,B", help="maps to draw; by default all that suit the network")
    parser.add_argument("--no-trust", action="store_true", help="do not measure how far to trust the maps: much faster")
    parser.add_argument(
        "--output", default="explanations", metavar="FOLDER", help="of the files, explanations by default"
    )
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"), help="cpu by default")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn by lot, 0 by default")


def run(arguments: argparse.Namespace) -> int:
    """Write the files; an image that cannot be read is named, and makes the status 1 at the end."""
    from zoo.evaluation.predictions import choose_device
    from zoo.preprocessing import Preprocessing
    from zoo.pretrained import load_classifier

    device = choose_device(arguments.device)
    sources = [arguments.weights, *([arguments.against] if arguments.against else [])]
    networks = [load_classifier(source, folder=arguments.folder, device=device) for source in sources]
    for _, card in networks:
        find_class(arguments.class_name, card)
    preprocessing = Preprocessing.from_dict(networks[0][1].preprocessing)
    readable, unreadable = open_images(arguments.images, preprocessing)
    if len(networks) == 1:
        explain_each(arguments, networks[0], readable)
    elif readable:
        explain_against(arguments, networks, readable)
    if unreadable:
        sys.stderr.write(f"zoo: {unreadable} of {len(arguments.images)} images could not be read\n")
    return int(unreadable > 0)


def explain_each(arguments: argparse.Namespace, network: "Network", images: "list[tuple[str, Image]]") -> None:
    """Write sheet, page and arrays of each image, and print what can be concluded."""
    from zoo.explain.drawing.sheet import headline
    from zoo.explain.trust.conclusions import conclude
    from zoo.explain.writing import file_stem, write_explanation

    taken: set[str] = set()
    for path, image in images:
        explanation = explain(arguments, network, path, image, arguments.class_name)
        print(headline(explanation))
        if explanation.trust is not None:
            for sentence in conclude(explanation.trust):
                print(f"  {sentence}")
        for written in write_explanation(explanation, arguments.output, file_stem(path, taken)):
            print(f"  written: {written}")


def explain_against(
    arguments: argparse.Namespace, networks: "list[Network]", images: "list[tuple[str, Image]]"
) -> None:
    """Write what two networks make of the images: explained is the class named, the true one, or the first's answer."""
    from zoo.explain.against import Pair, find_label, summarise
    from zoo.explain.drawing.pair_sheet import headline
    from zoo.explain.writing import write_pairs

    pairs = []
    for path, image in images:
        label = find_label(Path(path).absolute().parent.name, *(card.class_names for _, card in networks))
        first = explain(arguments, networks[0], path, image, arguments.class_name or label)
        second = explain(arguments, networks[1], path, image, first.class_name)
        pairs.append(Pair(first, second, label))
        print(headline(pairs[-1]))
    for sentence in summarise(pairs):
        print(f"  {sentence}")
    for written in write_pairs(pairs, arguments.output):
        print(f"  written: {written}")


def explain(
    arguments: argparse.Namespace, network: "Network", path: str, image: "Image", class_name: str | None
) -> "Explanation":
    """Explain what a network answers to an image."""
    from zoo.explain import explain_image
    from zoo.preprocessing import Preprocessing

    model, card = network
    return explain_image(
        model,
        image,
        preprocessing=Preprocessing.from_dict(card.preprocessing),
        class_names=card.class_names,
        class_index=find_class(class_name, card),
        methods=None if arguments.methods is None else arguments.methods.split(","),
        trust=not arguments.no_trust,
        seed=arguments.seed,
        network=card.name,
        title=Path(path).name,
        say=lambda what: tell(f"{path}: {card.name}: {what}"),
    )


def open_images(paths: list[str], preprocessing: "Preprocessing") -> tuple[list[tuple[str, "Image"]], int]:
    """Open the files that can be opened, name the others on standard error, and count those."""
    from zoo.preprocessing import open_image

    opened: list[tuple[str, Any]] = []
    for path in paths:
        try:
            opened.append((path, open_image(path, preprocessing.channels, preprocessing.background)))
        except (ValueError, OSError) as error:
            sys.stderr.write(f"zoo: error: {error}\n")
    return opened, len(paths) - len(opened)


def find_class(name: str | None, card: "WeightCard") -> int | None:
    """Return the number of a class, ``None`` for ``None``.

    Raises:
        ValueError: The weights have no such class.
    """
    from zoo.registry import suggest

    names = card.class_names
    if name is None:
        return None
    if name not in names:
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"{name!r} is no class of {card.name}.{suggest(name, list(names))} Known: {known}")
    return names.index(name)


def tell(line: str) -> None:
    """Say on standard error what happens."""
    sys.stderr.write(f"{line}\n")
