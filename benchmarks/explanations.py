"""Do the maps of ``zoo explain`` lie on the object?

The share of each map inside the object boxes of photographs (imagenet_val1000_boxes in ``$ZOO_DATA``), beside chance
(the boxes' share of the image), a centre prior that knows no image, and the same maps of the network with scrambled
weights.

    python benchmarks/explanations.py --weights NAME --data $ZOO_DATA/imagenet_val1000_boxes

appends to ``benchmarks/results/explanations.csv`` and writes the table of ``docs/explaining.md``: two seconds per
photograph on one core, for a small network.
"""

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.documents import fill_section, format_table
from benchmarks.measurements import append_rows, describe_run
from zoo.explain.gradients import predict
from zoo.explain.heatmap import to_mass
from zoo.explain.methods import explain_with, suitable_methods
from zoo.explain.placement import Placement, share_inside
from zoo.explain.trust.randomisation import scrambled
from zoo.preprocessing import Preprocessing, open_image
from zoo.pretrained import WeightCard, load_pretrained

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "explanations.csv"
DOCUMENT = ROOT / "docs" / "explaining.md"
CHANCE, CENTRE = "chance: the boxes' share of the image", "centre prior"
KNOWN, OTHER = "classes of the network, explained: the true one", "other photographs, explained: the answer"
OVER = ("over_chance", "over_centre")
SMALLEST, LARGEST = 0.02, 0.8
SEED = 0


class Photograph(NamedTuple):
    """A photograph with boxes.

    Args:
        path: The file.
        names: What its class is called in words.
        boxes: Left, top, right, bottom of each object in pixels.
    """

    path: Path
    names: tuple[str, ...]
    boxes: tuple[tuple[float, float, float, float], ...]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, append, and write the document's table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="a name, card, file or run folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of imagenet_val1000_boxes")
    parser.add_argument("--num_images", type=int, default=200, help="photographs of other classes, evenly spaced")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(arguments)
    model, card = load_pretrained(options.weights)
    rows = list(measure(model, card, read_photographs(options.data), options.num_images))
    for row in rows:
        print(f"{row['group'][:20]:<20} {row['what']:<45} {row['share']:>6}  {row['share_low']} to {row['share_high']}")
    run = describe_run(seed=SEED)
    append_rows(options.output, [run | row for row in rows])
    fill_section(options.document, "boxes", document_table(newest_rows(options.output)))


def read_photographs(folder: Path) -> list[Photograph]:
    """Return the photographs of a folder with ``annotations.json`` and ``images``."""
    content = json.loads((folder / "annotations.json").read_text(encoding="utf-8"))
    names = {entry["wnid"]: tuple(entry["name"].casefold().split(", ")) for entry in content["classes"]}
    return [
        Photograph(folder / "images" / entry["file"], names[entry["wnid"]], tuple(map(tuple, entry["boxes"])))
        for entry in content["images"]
    ]


def measure(
    model: nn.Module, card: WeightCard, photographs: Sequence[Photograph], num_images: int
) -> Iterator[dict[str, Any]]:
    """Yield one row per group of photographs and map."""
    preprocessing = Preprocessing.from_dict(card.preprocessing)
    class_names = [name.casefold().replace("_", " ") for name in card.class_names]
    known = [each for each in photographs if set(each.names) & set(class_names)]
    others = [each for each in photographs if each not in known]
    step = max(1, len(others) // num_images)
    for group, chosen in ((KNOWN, known), (OTHER, others[::step][:num_images])):
        shares: dict[str, list[float]] = defaultdict(list)
        for photograph in chosen:
            label = next((class_names.index(name) for name in photograph.names if name in class_names), None)
            for what, share in shares_of(model, preprocessing, photograph, label):
                shares[what].append(share)
        for what, values in shares.items():
            yield row(card.name, group, what, values, chance=shares[CHANCE], centre=shares[CENTRE])


def shares_of(
    model: nn.Module, preprocessing: Preprocessing, photograph: Photograph, label: int | None
) -> Iterator[tuple[str, float]]:
    """Yield the share inside the boxes of chance, of the centre prior, and of each map, trained and scrambled.

    Nothing comes of photographs whose boxes are nearly none or nearly all of what the network sees.
    """
    image = open_image(photograph.path, preprocessing.channels, preprocessing.background)
    placement = Placement.of(image, preprocessing)
    region = box_region(photograph.boxes, placement, (preprocessing.height, preprocessing.width))
    if not SMALLEST <= float(region.mean()) <= LARGEST:
        return
    yield CHANCE, float(region.mean())
    yield CENTRE, share_inside(centre_prior(region.shape[0], region.shape[1]), region)
    images = preprocessing(image).unsqueeze(0)
    class_index = int(predict(model, images)[0].argmax()) if label is None else label
    for state, network in (("", model), (", weights scrambled", scrambled(model, "all", seed=SEED))):
        for name in suitable_methods(network, images):
            heatmap = explain_with(name, network, images, class_index)
            yield f"{heatmap.title}{state}", share_inside(heatmap.mass(), region)


def box_region(
    boxes: Iterable[tuple[float, float, float, float]], placement: Placement, size: tuple[int, int]
) -> Tensor:
    """Return how much of each pixel of the network's input lies in a box, 0 to 1, (height, width)."""
    left, top, right, bottom = placement.box
    height, width = size
    region = torch.zeros(size, dtype=torch.float64)
    for box in boxes:
        rows = covered(height, (box[1] - top) / (bottom - top) * height, (box[3] - top) / (bottom - top) * height)
        columns = covered(width, (box[0] - left) / (right - left) * width, (box[2] - left) / (right - left) * width)
        region = torch.maximum(region, rows[:, None] * columns[None, :])
    return region


def covered(length: int, start: float, end: float) -> Tensor:
    """Return how much of each of ``length`` pixels in a row lies between two positions.

    >>> covered(4, 0.5, 2.25).tolist()
    [0.5, 1.0, 0.25, 0.0]
    """
    edges = torch.arange(length + 1, dtype=torch.float64).clamp(start, max(start, end))
    return edges.diff()


def centre_prior(height: int, width: int) -> Tensor:
    """Return a bell curve around the middle whose deviation is a quarter of each side, summing to 1."""
    rows, columns = (torch.exp(-8 * ((torch.arange(side) + 0.5) / side - 0.5) ** 2) for side in (height, width))
    return to_mass(rows[:, None] * columns[None, :])


def row(
    weights: str, group: str, what: str, values: Sequence[float], *, chance: Sequence[float], centre: Sequence[float]
) -> dict[str, Any]:
    """Return the mean over photographs, and of the differences to chance and centre prior, with 95 % intervals."""
    measured = {
        "share": values,
        "over_chance": [value - prior for value, prior in zip(values, chance, strict=True)],
        "over_centre": [value - prior for value, prior in zip(values, centre, strict=True)],
    }
    columns = {}
    for name, each in measured.items():
        mean, spread = _mean_and_spread(each)
        columns |= {name: f"{mean:.4f}", f"{name}_low": f"{mean - spread:.4f}", f"{name}_high": f"{mean + spread:.4f}"}
    return {"weights": weights, "group": group, "what": what, "num_images": len(values), **columns}


def _mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), 1.96 * deviation / math.sqrt(len(values))


def newest_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """Return the rows of the last run."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["date"] == rows[-1]["date"]]


def document_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the rows as one Markdown table per group, and how they were made."""
    parts = []
    for group in dict.fromkeys(row["group"] for row in rows):
        found = [row for row in rows if row["group"] == group]
        body = [[row["what"], f"{_percent(row['share'])} %", *(_points(row, over) for over in OVER)] for row in found]
        header = ["map", "share inside the boxes", "points over chance", "points over the centre prior"]
        title = f"{found[0]['num_images']} photographs: {group}; in brackets 95 % intervals."
        parts.append(f"{title}\n\n{format_table(header, body)}")
    first = rows[0]
    parts.append(
        f"`{first['weights']}`, {first['date'][:10]}, seed {first['seed']}, {first['processor']}, torch "
        f"{first['torch']}, commit {first['commit'][:10]}."
    )
    return "\n\n".join(parts)


def _points(row: Mapping[str, str], over: str) -> str:
    """Return a difference and its interval in percentage points."""
    mean, low, high = (100 * float(row[name]) for name in (over, f"{over}_low", f"{over}_high"))
    return "" if row["what"] in (CHANCE, CENTRE) and mean == low == high else f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def _percent(fraction: str) -> str:
    return f"{100 * float(fraction):.1f}"


if __name__ == "__main__":
    main()
