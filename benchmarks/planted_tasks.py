"""Two folders of images whose answer is known: one where a spatial gate has something to gain, one where none can help.

    python benchmarks/planted_tasks.py FOLDER
    zoo recommend --data FOLDER/colours ...
    zoo recommend --data FOLDER/tints ...

``colours``: the class is the one colour of the whole image. Every place says the same, so there is nothing to choose
between places, and the mean over all places, which every net takes at its end, is already the best evidence there is.

``tints``: the class is a faint tint within a patch of rough brightness; the patch lies anywhere, and around it stronger
tints that mean nothing drift over the image. What makes it one: the evidence is weak and graded, so it must be summed
over the patch and over nothing else. A spatial gate sees roughness in the mean and the maximum over the channels, and
*multiplies* the tints elsewhere by nearly nothing. Convolutions with ReLU can only *add* the roughness to the tint and
cut off below a threshold, and then the roughness itself, which varies from pixel to pixel, is noise on the tint; from
few images this is learned worse. With many images, or a bright mark instead of a rough patch, plain nets learn it too.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[np.float64]

SIDE = 32
PATCH = 10
CLASSES = ("red", "green", "blue", "yellow")
DIRECTIONS = np.array([[1, -1, 0], [-1, 1, 0], [-0.5, -0.5, 1], [0.5, 0.5, -1]])
COUNTS = {"train": 400, "val": 600, "test": 600}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="receives the folders colours and tints")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of images")
    options = parser.parse_args(arguments)
    for name, draw in (("colours", draw_colours), ("tints", draw_tints)):
        write_folder(options.folder / name, draw, scale=options.scale)
        print(options.folder / name)


def write_folder(folder: Path, draw: Callable[[Array, np.random.Generator], Array], *, scale: float = 1.0) -> None:
    """Write class folders of PNG files under ``train``, ``val`` and ``test``, the same on every machine.

    Args:
        folder: Is made.
        draw: Turns the directions of the classes (images, 3) into images.
        scale: Of the numbers of images.
    """
    for number, (split, count) in enumerate(COUNTS.items()):
        labels = np.arange(max(len(CLASSES), round(scale * count))) % len(CLASSES)
        images = draw(DIRECTIONS[labels], np.random.default_rng([0, number]))
        pixels = (np.clip(images, 0, 1) * 255 + 0.5).astype(np.uint8)
        for index, (label, image) in enumerate(zip(labels, pixels, strict=True)):
            path = folder / split / CLASSES[label] / f"{index:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


def draw_colours(directions: Array, generator: np.random.Generator, *, strength: float = 0.15) -> Array:
    """Draw images of one colour each, some lighter, some darker, with noise on every pixel."""
    count = len(directions)
    brightness = generator.uniform(0.35, 0.65, (count, 1, 1, 1))
    noise = generator.normal(0, 0.1, (count, SIDE, SIDE, 3))
    return brightness + strength * directions[:, None, None] + noise


def draw_tints(
    directions: Array,
    generator: np.random.Generator,
    *,
    strength: float = 0.05,
    drift: float = 0.2,
    rough: float = 0.3,
) -> Array:
    """Draw drifting tints, and on them a patch of rough brightness whose faint tint is the class.

    Args:
        directions: Of the tint of each class (images, 3).
        generator: Of all draws.
        strength: Of the tint that counts.
        drift: Standard deviation of the tints around it.
        rough: Steps of brightness within the patch.
    """
    count = len(directions)
    images = 0.5 + drift * smooth_tints(count, generator)
    corners = generator.integers(0, SIDE - PATCH + 1, (count, 2))
    for image, direction, (row, column) in zip(images, directions, corners, strict=True):
        signs = generator.choice([-1.0, 1.0], (PATCH, PATCH, 1))
        image[row : row + PATCH, column : column + PATCH] = 0.5 + strength * direction + rough * signs
    return images + generator.normal(0, 0.1, images.shape)


def smooth_tints(count: int, generator: np.random.Generator, *, cells: int = 4) -> Array:
    """Return fields of colour without brightness (count, SIDE, SIDE, 3), linear between ``cells`` points a side."""
    points = generator.normal(0, 1, (count, cells, cells, 3))
    points -= points.mean(axis=-1, keepdims=True)
    position = np.linspace(0, cells - 1, SIDE)
    weights = np.maximum(0, 1 - np.abs(position[:, None] - np.arange(cells)))
    return np.einsum("ri,cj,nijk->nrck", weights, weights, points)


if __name__ == "__main__":
    main()
