"""Small folders of images, and CIFAR files in miniature."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets
from torchvision.datasets.utils import calculate_md5

from zoo.data.cifar import CIFAR10


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = (12, 10)) -> None:
    """Write a picture of noise; the suffix decides the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def make_images() -> Callable[..., None]:
    """Return a function that writes ``count`` PNG images into each of some class folders."""

    def make(folder: Path, classes: str | list[str], count: int = 5) -> None:
        for number, name in enumerate(classes):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                write_image(folder / name / f"{index}.png", seed=100 * number + index)

    return make


@pytest.fixture
def cifar_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a set in the layout of CIFAR-10: 5 x 40 training images, 20 test images, ten classes."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    generator = np.random.default_rng(0)
    sizes = {f"data_batch_{number}": 40 for number in range(1, 6)} | {"test_batch": 20}
    for name, size in sizes.items():
        pixels = generator.integers(0, 256, (size, 3072), dtype=np.uint8)
        content = {"data": pixels, "labels": [index % 10 for index in range(size)]}
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class_{number}" for number in range(10)]}))
    sums = {name: calculate_md5(folder / name) for name in [*sizes, "batches.meta"]}

    lists = {
        "train_list": [[name, sums[name]] for name in sizes if name != "test_batch"],
        "test_list": [["test_batch", sums["test_batch"]]],
        "meta": {"filename": "batches.meta", "key": "label_names", "md5": sums["batches.meta"]},
    }
    monkeypatch.setattr(CIFAR10, "_source", type("Miniature", (datasets.CIFAR10,), lists))
    return tmp_path
