"""Do the weights of others compute here what they compute there? Logits beside the originals', accuracy beside theirs.

python benchmarks/parity.py                     all networks with a counterpart, on random weights
python benchmarks/parity.py --weights FOLDER    also the files in FOLDER that are in PUBLISHED, on CIFAR-10 in $ZOO_DATA
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import zoo
from zoo.pretrained.name_maps import Original, family_of

RESULTS = Path(__file__).parent / "results" / "parity.csv"
SEED = 0
IMAGE_SIZE = (3, 97, 65)  # odd and not square, so that padding on the wrong side shows


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


def create_original(original: Original) -> nn.Module:
    """Build the published module with random weights, and random factors and statistics in every norm.

    Each norm gets the statistics of its own input, off by up to a factor of two, so that the signal keeps its size
    through a hundred layers and a layer that is swapped, skipped or given another constant shows in the logits.
    """
    torch.manual_seed(SEED)
    if original.library == "timm":
        import timm

        model = timm.create_model(original.name)
    else:
        from torchvision import models

        model = models.get_model(original.name)
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


def compare_logits(original: Original, dtype: torch.dtype = torch.float32) -> tuple[float, float]:
    """Return the largest difference between our logits and the original's on random images, and their largest size."""
    theirs = create_original(original)
    state = theirs.state_dict()
    weights = family_of(original.model).layout_of(state).convert(state)
    ours = zoo.create_model(original.model, **original.options).eval()
    ours.load_state_dict({name: piece.tensor for name, piece in weights.items()})
    images = torch.randn(2, *IMAGE_SIZE, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad():
        expected, actual = theirs.to(dtype)(images), ours.to(dtype)(images)
    if (expected[0] - expected[1]).abs().max() < 0.01 * expected.abs().max():
        raise RuntimeError(f"{original.name}: the logits of two images are nearly equal, so they prove nothing")
    return float((expected - actual).abs().max()), float(expected.abs().max())


def measure_accuracy(file: Path, model_name: str, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of CIFAR-10 images, normalised and labelled, that a converted file gets right."""
    model = zoo.create_model(model_name, pretrained=str(file)).eval()
    with torch.no_grad():
        hits = sum(
            int((model(part).argmax(1) == truth).sum())
            for part, truth in zip(images.split(500), labels.split(500), strict=True)
        )
    return hits / len(labels)
