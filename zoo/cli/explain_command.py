"""``zoo explain``: what trained weights look at in image files, and how far to trust that."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

    from zoo.preprocessing import Preprocessing

SUMMARY = "Show what weights look at in images, and how far to trust the pictures."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image file")
    parser.add_argument("--weights", required=True, help="a name (see zoo list weights), card, file or run folder")
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
    """Write the files of each image; one that cannot be read is named, and makes the status 1 at the end."""
    from zoo.evaluation.predictions import choose_device
    from zoo.explain import explain_image, write_explanation
    from zoo.explain.drawing.sheet import headline
    from zoo.explain.trust.conclusions import conclude
    from zoo.explain.writing import file_stem
    from zoo.preprocessing import Preprocessing
    from zoo.pretrained import load_pretrained

    model, card = load_pretrained(arguments.weights, folder=arguments.folder, device=choose_device(arguments.device))
    class_index = find_class(arguments.class_name, card.class_names)
    preprocessing = Preprocessing.from_dict(card.preprocessing)
    taken: set[str] = set()
    readable, unreadable = open_images(arguments.images, preprocessing)
    for path, image in readable:
        explanation = explain_image(
            model,
            image,
            preprocessing=preprocessing,
            class_names=card.class_names,
            class_index=class_index,
            methods=None if arguments.methods is None else arguments.methods.split(","),
            trust=not arguments.no_trust,
            seed=arguments.seed,
            network=card.name,
            title=Path(path).name,
            say=lambda what, path=path: tell(f"{path}: {what}"),
        )
        print(headline(explanation))
        if explanation.trust is not None:
            for sentence in conclude(explanation.trust):
                print(f"  {sentence}")
        for written in write_explanation(explanation, arguments.output, file_stem(path, taken)):
            print(f"  written: {written}")
    if unreadable:
        sys.stderr.write(f"zoo: {unreadable} of {len(arguments.images)} images could not be read\n")
    return int(unreadable > 0)


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


def find_class(name: str | None, class_names: tuple[str, ...]) -> int | None:
    """Return the number of a class, ``None`` for ``None``.

    Raises:
        ValueError: There is no such class.

    >>> find_class("dog", ("cat", "dog"))
    1
    """
    from zoo.registry import suggest

    if name is None:
        return None
    if name not in class_names:
        known = ", ".join(class_names[:20]) + (", ..." if len(class_names) > 20 else "")
        raise ValueError(
            f"--class {name!r} is no class of the weights.{suggest(name, list(class_names))} Known: {known}"
        )
    return class_names.index(name)


def tell(line: str) -> None:
    """Say on standard error what happens."""
    sys.stderr.write(f"{line}\n")
