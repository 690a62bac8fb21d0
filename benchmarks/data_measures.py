"""How far can the measures of ``zoo recommend`` be trusted, which know of no boxes?

They are held against the knobs of cluttered_digits, against the object boxes of 1,000 photographs
(imagenet_val1000_boxes in ``$ZOO_DATA``), and, for the gradient, against the pixels of the digit that counts.

    python benchmarks/data_measures.py --data $ZOO_DATA/imagenet_val1000_boxes

appends to ``benchmarks/results/data_measures.csv``: two minutes on one core.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

import zoo
from benchmarks.measurements import append_rows, describe_run
from zoo.comparison.recommendation.data_measures import (
    SIDE,
    DataMeasures,
    ImageMeasures,
    edge_strength,
    measure_images,
    moments,
    opponent_colours,
    to_measured_size,
)
from zoo.comparison.recommendation.saliency import gradient_mass, share_outside
from zoo.data import create_data
from zoo.data.data_module import ImageDataModule
from zoo.preprocessing import open_image
from zoo.pretrained import load_pretrained
from zoo.training.program import main as train

RESULTS = Path(__file__).parent / "results" / "data_measures.csv"
JITTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
CLUTTERS = (0, 2, 4, 8, 16)
NUM_DIGIT_IMAGES = 3000
NUM_GROUPS = 20
SEED = 0


@dataclass(frozen=True)
class Row:
    """One figure.

    Args:
        subject: Of which images.
        setting: With which knobs, or over what.
        what: The measure and what it is held against.
        value: The figure.
        unit: Of the value.
        num_images: Behind it.
    """

    subject: str
    setting: str
    what: str
    value: float
    unit: str
    num_images: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and append."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help="folder of imagenet_val1000_boxes; without it photographs are left out"
    )
    parser.add_argument("--num_images", type=int, default=NUM_DIGIT_IMAGES, help="of cluttered_digits")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = [*digit_rows(options.num_images), *saliency_rows(options.num_images)]
    if options.data is not None:
        rows += box_rows(options.data)
    for row in rows:
        print(f"{row.subject:<22} {row.setting:<34} {row.what:<58} {row.value:8.4f} {row.unit}")
    shared = describe_run(seed=SEED)
    append_rows(options.output, [shared | vars(row) for row in rows])


def digit_rows(num_images: int) -> Iterator[Row]:
    """Move one knob at a time, and say whether its measure follows."""
    for clutter in (0, 8):
        settings = [{"position_jitter": jitter, "clutter": clutter} for jitter in JITTERS]
        yield from knob_rows("position spread", "position_jitter", settings, num_images)
    for jitter in (0.0, 1.0):
        settings = [{"position_jitter": jitter, "clutter": clutter} for clutter in CLUTTERS]
        yield from knob_rows("clutter", "clutter", settings, num_images)


def knob_rows(measure: str, knob: str, settings: Sequence[dict[str, Any]], num_images: int) -> Iterator[Row]:
    """Yield the measure at each setting, and whether it rises all the way."""
    values = []
    for setting in settings:
        data = digits(num_images, **setting)
        summary = DataMeasures.of(measure_split(data))
        values.append(summary.position_spread if measure == "position spread" else summary.clutter)
        text = ", ".join(f"{name} {value:g}" for name, value in setting.items())
        yield Row("cluttered_digits", text, measure, values[-1], "", summary.num_images)
    rises = all(first < second for first, second in itertools.pairwise(values))
    fixed = ", ".join(f"{name} {value:g}" for name, value in settings[0].items() if name != knob)
    what = f"{measure} rises with {knob} at every step"
    yield Row("cluttered_digits", fixed, what, float(rises), "yes=1", summary.num_images)


def digits(num_images: int, **knobs: Any) -> ImageDataModule:
    """Return cluttered_digits with some knobs set."""
    data = create_data("cluttered_digits", num_images=num_images, **knobs)
    data.setup()
    return data


def measure_split(data: ImageDataModule, split: Any = "val") -> ImageMeasures:
    """Measure all images of a split."""
    return ImageMeasures.join([measure_images(batch.images) for batch in data.create_loader(split)])


def saliency_rows(num_images: int) -> Iterator[Row]:
    """Train a plain net briefly; ask how much of its gradient lies on the digit that counts, before and after."""
    knobs = {"clutter": 8, "num_images": num_images}
    # The same images without fragments and noise: what is brighter than any background is the digit.
    clean = digits(num_images, clutter=0, noise=0.0)
    (pixels,) = [batch.images for batch in [next(iter(clean.create_loader("val")))]]
    region = to_measured_size(pixels).amax(dim=1) > 0.55
    data = digits(num_images, clutter=8)
    batch = next(iter(data.create_loader("val")))
    images = data.preprocessing.normalize(batch.images)
    torch.manual_seed(SEED)
    fresh = zoo.create_model("resnet20", width_multiplier=0.5)
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--data.{name}={value}" for name, value in knobs.items()]
        words += ["--model.width_multiplier=0.5", "--trainer.max_epochs=5", f"--run_dir={folder}/run"]
        if train([*words, "--data.batch_size=32"]) != 0:
            raise RuntimeError("the brief training failed")
        trained, _ = load_pretrained(f"{folder}/run")
    for label, model in (("untrained", fresh), ("trained 5 epochs", trained)):
        shares = share_outside(gradient_mass(model, images, batch.labels), region)
        inside = float((1 - shares.mass_outside).sum() / (1 - shares.area_outside).sum())
        what = "gradient on the digit, over what even spreading gives"
        yield Row("cluttered_digits", f"clutter 8, resnet20 x 0.5 {label}", what, inside, "x", len(images))
    shares = share_outside(gradient_mass(trained, images, batch.labels), measure_images(batch.images).region)
    what = "gradient outside the object-like region, over even spreading"
    yield Row("cluttered_digits", "clutter 8, resnet20 x 0.5 trained 5 epochs", what, shares.ratio, "x", len(images))


def box_rows(folder: Path) -> Iterator[Row]:
    """Hold measures against the boxes of photographs: image by image, and group by group."""
    pixels, boxes = read_boxes(folder)
    found = ImageMeasures.join([measure_images(part) for part in pixels.split(100)])
    centre, size = moments(boxes.float())
    edges = edge_strength(opponent_colours(to_measured_size(pixels)))
    outside = (edges * ~boxes).sum(dim=(1, 2)) / (~boxes).sum(dim=(1, 2)).clamp_min(1)
    has_background = (~boxes).float().mean(dim=(1, 2)) > 0.1
    every = torch.ones_like(has_background)
    for what, measured, truth, kept in (
        ("row of the centre", found.centre[:, 0], centre[:, 0], every),
        ("column of the centre", found.centre[:, 1], centre[:, 1], every),
        ("distance from the middle", found.off_centre, centre.norm(dim=1), every),
        ("size", found.size, size, every),
        ("clutter", found.clutter, outside, has_background),
    ):
        yield box_row("image by image", what, measured[kept], truth[kept], int(kept.sum()))
    yield from group_rows(found, centre, size)


def group_rows(found: ImageMeasures, centre: Tensor, size: Tensor) -> Iterator[Row]:
    """Compare what is said of groups of images, which are formed so that the truth differs between them."""
    logarithm = size.log()

    def spread(values: Tensor) -> Tensor:
        return values.std(dim=0).mean()

    for what, key, measured, truth, summary in (
        ("position spread", centre.norm(dim=1), found.centre, centre, spread),
        ("mean size", size, found.size, size, torch.mean),
        ("size spread", (logarithm - logarithm.median()).abs(), found.size.log(), logarithm, spread),
    ):
        groups = key.argsort().chunk(NUM_GROUPS)
        ours = torch.stack([summary(measured[group]) for group in groups])
        theirs = torch.stack([summary(truth[group]) for group in groups])
        yield box_row(f"over {NUM_GROUPS} groups", what, ours, theirs, len(key))


def box_row(setting: str, what: str, measured: Tensor, truth: Tensor, num_images: int) -> Row:
    """Return the rank correlation of a measure with the truth."""
    correlation = float(spearmanr(measured.numpy(), truth.numpy()).statistic)
    return Row("imagenet_val1000_boxes", setting, f"{what}, with that of the boxes", correlation, "rho", num_images)


def read_boxes(folder: Path) -> tuple[Tensor, Tensor]:
    """Return photographs as uint8 (images, 3, SIDE, SIDE), and which of these pixels lie in a box."""
    entries = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))["images"]
    pixels = torch.empty(len(entries), 3, SIDE, SIDE, dtype=torch.uint8)
    boxes = torch.zeros(len(entries), SIDE, SIDE, dtype=torch.bool)
    for number, entry in enumerate(entries):
        image = open_image(folder / "images" / entry["file"])
        raw = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        whole = raw.view(image.height, image.width, 3).permute(2, 0, 1).unsqueeze(0)
        pixels[number] = (to_measured_size(whole)[0] * 255).round().to(torch.uint8)
        width, height = entry["size"]
        for left, top, right, bottom in entry["boxes"]:
            rows = slice(int(top / height * SIDE), max(int(top / height * SIDE) + 1, round(bottom / height * SIDE)))
            columns = slice(int(left / width * SIDE), max(int(left / width * SIDE) + 1, round(right / width * SIDE)))
            boxes[number, rows, columns] = True
    return pixels, boxes


if __name__ == "__main__":
    main()
