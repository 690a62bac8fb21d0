"""``zoo recommend``: SE, CBAM or nothing for one's own images, with the evidence."""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.comparison.choices import Choice
    from zoo.comparison.recommendation.answer import Request

SUMMARY = "Say whether SE, CBAM or no attention suits your images: measured, with cost and confidence."
TAKES_RUN_OPTIONS = True
INTERRUPTED = 130

SMALL_IMAGE = 64
MODEL_OF_SMALL_IMAGES = "resnet20"
MODEL_OF_LARGE_IMAGES = "resnet18"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "Any option of train.py that has a dot in its name, such as --data.image_size 64, holds for all runs. "
        "The same command goes on where an earlier one was stopped. The images of a folder are compared at the size "
        "that is usual among them, up to 128 pixels, unless --data.image_size says otherwise."
    )
    parser.add_argument(
        "--data", required=True, metavar="FOLDER|NAME", help="class folders of images, or NAME or 'NAME(option=value)'"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"the net, also as 'NAME(option=value)'; by default {MODEL_OF_SMALL_IMAGES} for images of up to "
        f"{SMALL_IMAGE} pixels, {MODEL_OF_LARGE_IMAGES} for larger ones",
    )
    parser.add_argument("--budget", type=float, default=30.0, metavar="MINUTES", help="for everything; 30 by default")
    parser.add_argument(
        "--latency-budget", type=float, metavar="PERCENT", help="how much more time an image may take; any by default"
    )
    parser.add_argument(
        "--margin", type=float, default=0.5, metavar="POINTS", help="the smallest gain worth a price; 0.5 by default"
    )
    parser.add_argument("--folder", help="of the runs and the report, runs/recommendations/DATA_MODEL by default")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Answer, print the answer, and write the page beside it."""
    from zoo.comparison.recommendation.procedure import recommend
    from zoo.comparison.recommendation.report import format_text, write_recommendation

    request = read_request(arguments)
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        answer = recommend(request, say=tell)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nStopped, and nothing is lost. Go on with\n  {shlex.join(['zoo', *arguments.words])}\n")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)
    values, page = write_recommendation(answer, request.folder)
    print(values.read_text(encoding="utf-8") if arguments.json else format_text(answer))
    tell(f"Written: {values} and {page}")
    return 0


def tell(line: str) -> None:
    """Say on standard error what happens, so that standard output holds the answer alone."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def read_request(arguments: argparse.Namespace) -> "Request":
    """Turn the options into a request.

    Raises:
        ValueError: An option is written otherwise or out of its range, or the data are neither folder nor known name.
    """
    from zoo.comparison.choices import parse_choice
    from zoo.comparison.recommendation.answer import Request
    from zoo.comparison.study import parse_run_options

    recipe = parse_run_options(arguments.run_options)
    data = read_data_choice(arguments.data)
    options = {**recipe.get("data", {}), **data.options}
    size = options["image_size"] if "image_size" in options else default_image_size(data, options.get("root"))
    if not isinstance(size, int):
        raise ValueError(f"data.image_size ({size!r}) must be a whole number of pixels")
    if data.name == "image_folder" and "image_size" not in options:
        data = type(data)(data.name, {**data.options, "image_size": size})
    small = size <= SMALL_IMAGE
    model = parse_choice(arguments.model or (MODEL_OF_SMALL_IMAGES if small else MODEL_OF_LARGE_IMAGES))
    name = Path(options["root"]).resolve().name if data.name == "image_folder" else data.name
    return Request(
        data=data,
        model=model,
        folder=Path(arguments.folder or Path("runs") / "recommendations" / f"{name}_{model.name}"),
        budget_minutes=arguments.budget,
        latency_budget_percent=arguments.latency_budget,
        margin_points=arguments.margin,
        recipe=recipe,
    )


def read_data_choice(text: str) -> "Choice":
    """Read ``--data``: a folder there is, or a data set by name.

    Raises:
        ValueError: It is neither.
    """
    from zoo.comparison.choices import Choice, parse_choice
    from zoo.data import list_data
    from zoo.registry import suggest

    if Path(text).expanduser().is_dir():
        return Choice("image_folder", {"root": str(Path(text).expanduser().resolve())})
    known = list_data()
    choice = parse_choice(text) if text.partition("(")[0].strip() in known else None
    if choice is None:
        raise ValueError(
            f"--data {text!r} is no folder and no data set.{suggest(text, known)} Known: {', '.join(known)}"
        )
    return choice


def default_image_size(data: "Choice", root: str | None) -> int:
    """Return the size at which images are compared: a folder's own up to 128 pixels, else the data set's.

    Raises:
        ValueError: The folder is not named.
    """
    from zoo.comparison.recommendation.evidence import typical_short_side
    from zoo.data import create_data

    if data.name != "image_folder":
        return max(create_data(data.name, **data.options).image_size)
    if root is None:
        raise ValueError("--data image_folder does not say which folder; give the folder itself, --data FOLDER")
    return min(128, max(32, 32 * round(typical_short_side(str(root)) / 32)))
