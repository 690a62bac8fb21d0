"""Do the weights of others compute here what they compute there? Logits beside the originals', accuracy beside theirs.

python benchmarks/parity.py                     all networks with a counterpart, on random weights
python benchmarks/parity.py --only vit_         those of them with this in their name
python benchmarks/parity.py --weights FOLDER    also the published files in FOLDER, on CIFAR-10 in $ZOO_DATA
"""

import argparse
import csv
import importlib.metadata
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import zoo
from benchmarks.documents import fill_section, format_table
from benchmarks.measurements import append_rows, describe_run
from zoo.pretrained.name_maps import Original, families, family_of

RESULTS = Path(__file__).parent / "results" / "parity.csv"
DOCUMENT = Path(__file__).parent.parent / "docs" / "weights.md"
LOGITS = "largest difference of a logit, beside the largest logit"
ACCURACY = "test top-1, beside the published"
SEED = 0
IMAGE_SIZE = (3, 97, 65)  # odd and not square, so that padding on the wrong side shows
OTHER_GRID = (96, 160)  # for transformers, which are first given the images they are made for


class Published(NamedTuple):
    """A file that others trained on CIFAR-10, our model for it, and the test accuracy its maker states."""

    file: str
    model: str
    top1: float


PUBLISHED = (
    Published("resnet20-12fca82f.th", "resnet20", 0.9173),
    Published("resnet32-d509ac18.th", "resnet32", 0.9263),
)
"""Of akamaster/pytorch_resnet_cifar10."""


def create_original(original: Original, **options: Any) -> nn.Module:
    """Build the published module with random weights, and random factors and statistics in every norm.

    Each norm gets the statistics of its own input, off by up to a factor of two, so that the signal keeps its size
    through a hundred layers and a layer that is swapped, skipped or given another constant shows in the logits.
    """
    torch.manual_seed(SEED)
    if original.library == "timm":
        import timm

        model = timm.create_model(original.name, **options)
    else:
        from torchvision import models

        model = models.get_model(original.name, **options)
    if is_transformer(original):
        return _randomise_transformer(model)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.2)
        nn.init.normal_(norm.bias, 0, 0.2)
        norm.momentum = 1.0
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, 0, 0.2)
    with torch.no_grad():
        model.train()(torch.randn(4, *IMAGE_SIZE))
    for norm in norms:
        norm.running_mean.add_(0.1 * torch.randn_like(norm.running_mean))
        norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.5, 2))
    return model.eval()


def is_transformer(original: Original) -> bool:
    """Tell whether the original cuts images into patches, so that not every size of image fits."""
    return family_of(original.model).positions is not None


def _randomise_transformer(model: nn.Module) -> nn.Module:
    """Move every parameter away from where it starts, factors and tokens that start equal or at 0 among them."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2 if parameter.ndim == 1 else 0.02)
    return model.eval()


def compare_logits(
    original: Original,
    dtype: torch.dtype = torch.float32,
    *,
    image_size: Sequence[int] | None = None,
    **options: Any,
) -> tuple[float, float]:
    """Return the largest difference between our logits and the original's on random images, and their largest size.

    Args:
        original: The published network.
        dtype: Of weights and images.
        image_size: Height and width; ``None`` for :data:`IMAGE_SIZE`, or what a transformer is made for.
        options: Of the published network's builder.
    """
    theirs = create_original(original, **options)
    state = theirs.state_dict()
    weights = family_of(original.model).layout_of(state).convert(state)
    ours = zoo.create_model(original.model, **original.options).eval()
    ours.load_state_dict({name: piece.tensor for name, piece in weights.items()})
    size = (3, *(image_size or (ours.image_size if is_transformer(original) else IMAGE_SIZE[1:])))
    images = torch.randn(2, *size, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad():
        expected, actual = theirs.to(dtype)(images), ours.to(dtype)(images)
    if (expected[0] - expected[1]).abs().max() < 0.01 * expected.abs().max():
        raise RuntimeError(f"{original.name}: the logits of two images are nearly equal, so they prove nothing")
    return float((expected - actual).abs().max()), float(expected.abs().max())


def measure_accuracy(file: Path, model_name: str, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of normalised images that a file of others, loaded into our model, gets right."""
    model = zoo.create_model(model_name, pretrained=str(file)).eval()
    with torch.no_grad():
        parts = zip(images.split(500), labels.split(500), strict=True)
        hits = sum(int((model(part).argmax(1) == truth).sum()) for part, truth in parts)
    return hits / len(labels)


def read_test_images(folder: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return CIFAR-10's test images, normalised as the makers of :data:`PUBLISHED` did, and their labels."""
    from torchvision.datasets import CIFAR10

    test_set = CIFAR10(folder, train=False)
    mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, None, :, None, None]
    images = torch.from_numpy(test_set.data).permute(0, 3, 1, 2) / 255
    return (images - mean) / std, torch.tensor(test_set.targets)


def parity_rows(only: str) -> Iterable[dict[str, Any]]:
    """Measure every network with a counterpart whose name holds ``only``, timm's transformers on a second grid too."""
    for original in (original for family in families() for original in family.originals):
        subject = f"{original.library}:{original.name}"
        if only not in subject:
            continue
        yield _logits_row(original, subject, compare_logits(original))
        if is_transformer(original) and original.library == "timm":
            height, width = OTHER_GRID
            compared = compare_logits(original, image_size=OTHER_GRID, dynamic_img_size=True)
            yield _logits_row(original, f"{subject}, images of {height} x {width}", compared)


def _logits_row(original: Original, subject: str, compared: tuple[float, float]) -> dict[str, Any]:
    difference, size = compared
    options = ", ".join(f"{name}={value}" for name, value in original.options.items())
    return {
        "subject": subject,
        "ours": f"{original.model} {options}".strip(),
        "what": LOGITS,
        "value": f"{difference:.3g}",
        "reference": f"{size:.4g}",
    }


def accuracy_rows(folder: Path) -> Iterable[dict[str, Any]]:
    """Measure the published files that are in a folder.

    Raises:
        ValueError: None is there, or ``ZOO_DATA`` is not set.
    """
    files = [each for each in PUBLISHED if (folder / each.file).is_file()]
    if not files or not os.environ.get("ZOO_DATA"):
        wanted = ", ".join(each.file for each in PUBLISHED)
        raise ValueError(f"{folder} must hold one of {wanted}, and ZOO_DATA must name the folder of CIFAR-10")
    images, labels = read_test_images(os.environ["ZOO_DATA"])
    for each in files:
        accuracy = measure_accuracy(folder / each.file, each.model, images, labels)
        yield {
            "subject": each.file,
            "ours": each.model,
            "what": ACCURACY,
            "value": f"{accuracy:.4f}",
            "reference": f"{each.top1:.4f}",
        }


def newest_rows() -> list[dict[str, str]]:
    """Return of every subject the row measured last."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return list({row["subject"]: row for row in csv.DictReader(file)}.values())


def document_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the rows as two Markdown tables, and how they were made."""
    logits = [
        [f"`{row['subject']}`", f"`{row['ours']}`", row["value"], row["reference"]]
        for row in rows
        if row["what"] == LOGITS
    ]
    accuracies = [
        [
            f"`{row['subject']}`",
            f"`{row['ours']}`",
            *(f"{100 * float(row[key]):.2f} %" for key in ("value", "reference")),
        ]
        for row in rows
        if row["what"] == ACCURACY
    ]
    tables = [format_table(["original", "ours", "largest difference of a logit", "largest logit"], logits)]
    if accuracies:
        tables.append(format_table(["file", "ours", "test top-1 here", "published"], accuracies))
    origins = {
        f"{row['date'][:10]}, {row['processor']}, torch {row['torch']}, torchvision {row['torchvision']}, "
        f"timm {row['timm']}, commit {row['commit'][:10]}, seed {row['seed']}"
        for row in rows
    }
    return "\n\n".join([*tables, f"float32, in evaluation mode. {'; '.join(sorted(origins))}."])


def main() -> None:
    """Measure, append the rows, and write the document's section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only networks with TEXT in their name")
    parser.add_argument("--weights", type=Path, metavar="FOLDER", help="also measure the published files in FOLDER")
    arguments = parser.parse_args()
    run = describe_run(timm=importlib.metadata.version("timm"), seed=SEED)
    rows = list(parity_rows(arguments.only))
    if arguments.weights is not None:
        rows += accuracy_rows(arguments.weights)
    append_rows(RESULTS, [{**run, **row} for row in rows])
    for row in rows:
        print(f"{row['subject']:40} {row['what']}: {row['value']} (beside {row['reference']})")
    fill_section(DOCUMENT, "parity", document_table(newest_rows()))


if __name__ == "__main__":
    main()
