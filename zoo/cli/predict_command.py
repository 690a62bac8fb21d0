"""``zoo predict``: what trained weights see in image files."""

import argparse
import json
import sys
from typing import Any

SUMMARY = "Print the most likely classes of images."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image file")
    parser.add_argument("--weights", required=True, help="a name (see zoo list weights), card, file or run folder")
    parser.add_argument("--folder", help="where to look the name up, instead of the weights that come with the zoo")
    parser.add_argument("--top", type=int, default=5, metavar="K", help="how many classes to print, 5 by default")
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"), help="cpu by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer to each image; a file that cannot be read is named, and makes the status 1 at the end."""
    from zoo.evaluation.predictions import choose_device
    from zoo.pretrained import load_classifier

    if arguments.top < 1:
        raise ValueError(f"--top ({arguments.top}) must be at least 1")
    device = choose_device(arguments.device)
    model, card = load_classifier(arguments.weights, folder=arguments.folder, device=device)
    answers = []
    unreadable = 0
    for path in arguments.images:
        try:
            classes = classify(model, card, path, device=device, top=arguments.top)
        except UnreadableImage as error:
            unreadable += 1
            sys.stderr.write(f"zoo: error: {error}\n")
            continue
        answers.append({"image": path, "classes": [{"name": name, "probability": share} for name, share in classes]})
        if not arguments.json:
            print(path)
            for name, share in classes:
                print(f"  {100 * share:6.2f} %  {name}")
    if arguments.json:
        print(json.dumps(answers, indent=2))
    if unreadable:
        sys.stderr.write(f"zoo: {unreadable} of {len(arguments.images)} images could not be read\n")
    return int(unreadable > 0)


class UnreadableImage(ValueError):  # noqa: N818
    """One file is at fault, not the command."""


def classify(model: Any, card: Any, path: str, *, device: Any, top: int) -> list[tuple[str, float]]:
    """Return the most likely classes of an image file and their probabilities, in descending order.

    Raises:
        UnreadableImage: The file is missing, damaged, or no image.
        ValueError: The model answers NaN.
    """
    import torch

    from zoo.preprocessing import Preprocessing, open_image

    preprocessing = Preprocessing.from_dict(card.preprocessing)
    try:
        image = open_image(path, channels=preprocessing.channels, background=preprocessing.background)
    except (ValueError, OSError) as error:
        raise UnreadableImage(error) from None
    with torch.inference_mode():
        logits = model(preprocessing(image).unsqueeze(0).to(device))[0].double().cpu()
    if not logits.isfinite().all():
        raise ValueError(f"{path}: the logits of {card.name} are NaN or infinite: the model is broken")
    probabilities, positions = logits.softmax(dim=0).sort(descending=True, stable=True)
    pairs = zip(positions.tolist()[:top], probabilities.tolist(), strict=False)
    return [(card.class_names[position], probability) for position, probability in pairs]
