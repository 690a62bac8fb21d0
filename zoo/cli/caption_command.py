"""``zoo caption``: what trained captioners write about image files, and where they look for each word."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

    from zoo.models.captioner import Captioner
    from zoo.pretrained import WeightCard

SUMMARY = "Write captions of images, and show where the words come from."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image file")
    parser.add_argument("--weights", required=True, help="a name (see zoo list weights), card, file or run folder")
    parser.add_argument("--folder", help="where to look the name up, instead of the weights that come with the zoo")
    parser.add_argument("--beam", type=int, default=4, metavar="K", help="captions followed at a time, 4 by default")
    parser.add_argument("--output", default="captions", metavar="FOLDER", help="of the sheets, captions by default")
    parser.add_argument("--no-sheet", action="store_true", help="write no picture of where the words come from")
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"), help="cpu by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Print a caption of each image; a file that cannot be read is named, and makes the status 1 at the end."""
    from zoo.evaluation.predictions import choose_device
    from zoo.explain.writing import file_stem
    from zoo.models.captioner import Captioner
    from zoo.preprocessing import open_image
    from zoo.pretrained import load_pretrained

    if arguments.beam < 1:
        raise ValueError(f"--beam ({arguments.beam}) must be at least 1")
    model, card = load_pretrained(arguments.weights, folder=arguments.folder, device=choose_device(arguments.device))
    if not isinstance(model, Captioner):
        raise ValueError(f"the weights {card.name!r} are of {card.model['name']}, which tells classes: use zoo predict")
    answers: list[dict[str, Any]] = []
    unreadable = 0
    taken: set[str] = set()
    for path in arguments.images:
        try:
            image = open_image(path, len(card.preprocessing["mean"]), card.preprocessing["background"])
        except (ValueError, OSError) as error:
            unreadable += 1
            sys.stderr.write(f"zoo: error: {error}\n")
            continue
        answer = caption_image(model, card, image, beam_width=arguments.beam)
        shown = {key: value for key, value in answer.items() if key != "maps"}
        answers.append({"image": path, **shown})
        if not arguments.json:
            print(f"{path}: {answer['caption']}  (log p {answer['log_probability']:.2f})")
        if not arguments.no_sheet:
            sheet = Path(arguments.output) / f"{file_stem(path, taken)}.png"
            write_sheet(sheet, card, image, answer)
            answers[-1]["sheet"] = sheet.as_posix()
            if not arguments.json:
                print(f"  written: {sheet}")
    if arguments.json:
        print(json.dumps(answers, indent=2))
    if unreadable:
        sys.stderr.write(f"zoo: {unreadable} of {len(arguments.images)} images could not be read\n")
    return int(unreadable > 0)


def caption_image(model: "Captioner", card: "WeightCard", image: "Image", *, beam_width: int) -> dict[str, Any]:
    """Return ``caption``, ``words``, ``log_probability`` (nats, the end counted) and ``maps`` of an opened image.

    ``maps`` (words, rows, columns) tells where the captioner looked before it wrote each word.
    """
    import torch

    from zoo.data.vocabulary import Vocabulary

    device = next(model.parameters()).device
    inputs = card.preprocess(image).unsqueeze(0).to(device)
    with torch.inference_mode():
        written = model.write(inputs, beam_width=beam_width)
        maps = model.word_attention(inputs, written.words[:, :-1])[0].float().cpu()
    words = Vocabulary(card.class_names).decode(written.words[0].tolist())
    return {
        "caption": " ".join(words),
        "words": words,
        "log_probability": float(written.log_probability[0]),
        "maps": maps[: len(words)],
    }


def write_sheet(path: Path, card: "WeightCard", image: "Image", answer: dict[str, Any]) -> None:
    """Write the picture of a caption."""
    import numpy as np

    from zoo.explain.drawing.caption_sheet import draw_caption_sheet
    from zoo.explain.placement import Placement
    from zoo.preprocessing import Preprocessing
    from zoo.serialization import write_atomically

    placement = Placement.of(image, Preprocessing.from_dict(card.preprocessing))
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.asarray(image.convert("RGB"))
    sheet = draw_caption_sheet(pixels, placement, answer["words"], answer["maps"], title=answer["caption"])
    write_atomically(path, sheet)
