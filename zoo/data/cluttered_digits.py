"""Built-in data: handwritten digits on coloured backgrounds among fragments of other digits, made on the spot."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from typing_extensions import override

from zoo.data.data_module import SPLITS, ImageDataModule, ImageSet, Split, TensorSet
from zoo.data.splitting import image_keys, split_stratified
from zoo.preprocessing import PRESETS
from zoo.registry import DATASETS

Array = npt.NDArray[np.float32]

_SOURCE_SIDE = 8
_FRAGMENT_SIDE = 4
_CHUNK = 100
_SHARE = {"train": 4, "val": 1, "test": 1}


@DATASETS.register("cluttered_digits")
class ClutteredDigits(ImageDataModule):
    """Handwritten digits to be found in a colourful picture; needs no download.

    Each image is ``image_size`` square: a background that runs smoothly from one darker colour towards another, on it
    ``clutter`` fragments cut from other digits, in colours of middle brightness and at random places, some cut off by
    the border, and on top one whole digit in a bright colour, its height and width a fifth larger or smaller than
    ``digit_size`` at most, placed by ``position_jitter``; at last every channel of every pixel is moved by up to
    ``noise``. Only the whole digit counts: a fragment may touch it and look like a stroke of it.
    The digits are the 1,797 real ones of 8 x 8 pixels that come with scikit-learn, scaled up smoothly; training,
    validation and test use different ones, so a net cannot know a test digit by heart. Nothing else is done to training
    images.

    The images depend on the options and on ``seed`` alone: the same on every machine, whatever the seed of the run.
    Other ``clutter``, ``noise`` or ``position_jitter`` leave the rest of each image as it was: results can be paired.

    Args:
        image_size: Side of an image in pixels.
        num_images: Images in all: two thirds for training, a sixth each for validation and test; at least 60.
        digit_size: Side of the digit in pixels before it is varied by up to a fifth, at most ``image_size``.
        position_jitter: 0 puts the digit into the centre, 1 anywhere in the image, between them a part of that way.
        clutter: Number of fragments per image.
        noise: Largest change of a pixel, as a fraction of full brightness, 0 to 1.
        seed: Seed of the images.
        batch_size: Training images per step and process.
        eval_batch_size: Validation and test images per step and process.
        shuffle_seed: Seed of the order of training images.
        class_names: Order of classes that the labels must follow; ``None`` takes "0" to "9".

    Raises:
        ValueError: An option is out of its range.
    """

    def __init__(
        self,
        *,
        image_size: int = 32,
        num_images: int = 12_000,
        digit_size: int = 20,
        position_jitter: float = 1.0,
        clutter: int = 5,
        noise: float = 0.1,
        seed: int = 0,
        batch_size: int = 128,
        eval_batch_size: int = 512,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if not _SOURCE_SIDE <= digit_size <= image_size:
            raise ValueError(f"digit_size ({digit_size}) must be from {_SOURCE_SIDE} to image_size ({image_size})")
        if not 0 <= position_jitter <= 1:
            raise ValueError(f"position_jitter ({position_jitter}) must be from 0 (centred) to 1 (anywhere)")
        if not 0 <= noise <= 1:
            raise ValueError(f"noise ({noise}) must be from 0 to 1")
        if clutter < 0 or seed < 0:
            raise ValueError(f"clutter ({clutter}) and seed ({seed}) must be at least 0")
        if num_images < 60:
            raise ValueError(f"num_images ({num_images}) must be at least 60: ten classes in each of three splits")
        self._size = image_size
        self._num_images = num_images
        self._digit_size = digit_size
        self._position_jitter = position_jitter
        self._clutter = clutter
        self._noise = noise
        self._seed = seed
        preset = PRESETS["cluttered_digits"]
        super().__init__(
            name="cluttered_digits",
            class_names=[str(digit) for digit in range(10)],
            preprocessing=preset.replace_size(image_size, image_size),
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            demanded_class_names=class_names,
        )

    @override
    def read_splits(self) -> dict[Split, ImageSet]:
        sources = split_sources()
        held_out = self._num_images // sum(_SHARE.values())
        counts = {"train": self._num_images - 2 * held_out, "val": held_out, "test": held_out}
        image_sets: dict[Split, ImageSet] = {}
        for number, split in enumerate(SPLITS):
            digits, digit_labels = sources[split]
            # A stream for each part, so that more clutter or less noise leaves everything else as it was.
            streams = [np.random.default_rng([self._seed, number, part]) for part in range(3 + self._clutter)]
            images, labels = self._draw_images(digits, digit_labels, counts[split], streams)
            image_sets[split] = TensorSet(torch.from_numpy(images), torch.from_numpy(labels), split)
        return image_sets

    def _draw_images(
        self, digits: Array, digit_labels: npt.NDArray[np.int64], count: int, streams: list[np.random.Generator]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        generator = streams[0]
        labels = generator.permutation(np.arange(count, dtype=np.int64) % 10)
        by_label = np.argsort(digit_labels, kind="stable")
        first = np.searchsorted(digit_labels[by_label], np.arange(11))
        available = np.diff(first)[labels]
        chosen = by_label[first[labels] + (generator.random(count) * available).astype(np.int64)]
        images = np.empty((count, self._size, self._size, 3), dtype=np.uint8)
        for start in range(0, count, _CHUNK):
            part = slice(start, start + _CHUNK)
            images[part] = self._draw_chunk(digits, digits[chosen[part]], streams)
        return images, labels

    def _draw_chunk(self, digits: Array, chosen: Array, streams: list[np.random.Generator]) -> npt.NDArray[np.uint8]:
        """Paint background, fragments, digit and noise; float32 sums in a fixed order, so equal on every machine."""
        count, size = len(chosen), self._size
        of_digit, of_background, of_noise, *of_fragments = streams
        canvas = draw_background(count, size, of_background)
        scale = np.float32(self._digit_size / _SOURCE_SIDE)
        for generator in of_fragments:
            corner = generator.integers(0, _SOURCE_SIDE - _FRAGMENT_SIDE + 1, size=(2, count, 1, 1))
            inside = np.arange(_FRAGMENT_SIDE)
            rows, columns = corner[0] + inside[:, None], corner[1] + inside[None, :]
            picked = generator.integers(0, len(digits), size=(count, 1, 1))
            fragments = digits[picked, rows, columns]
            side = np.full((count, 2), scale * _FRAGMENT_SIDE, dtype=np.float32)
            # A fragment may be cut off by the border of the image, as anything in a photograph may.
            corners = generator.random((count, 2), dtype=np.float32) * np.float32(size) - side / np.float32(2)
            paint(canvas, fragments, corners, side, draw_colours(count, 0.3, 0.8, generator))
        stretch = np.float32(0.8) + np.float32(0.4) * of_digit.random((count, 2), dtype=np.float32)
        side = np.minimum(np.float32(self._digit_size) * stretch, np.float32(size))
        jitter = np.float32(self._position_jitter)
        way = np.float32(0.5) + jitter * (of_digit.random((count, 2), dtype=np.float32) - np.float32(0.5))
        paint(canvas, chosen, way * (np.float32(size) - side), side, draw_colours(count, 0.6, 1, of_digit))
        if self._noise:
            canvas += np.float32(self._noise) * (2 * of_noise.random(canvas.shape, dtype=np.float32) - 1)
        pixels = np.clip(canvas, 0, 1) * np.float32(255) + np.float32(0.5)
        return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).astype(np.uint8)

    @override
    def describe_source(self) -> list[str]:
        return [
            f"Made from scikit-learn's handwritten digits, seed {self._seed}: digits of about {self._digit_size} "
            f"pixels, position jitter {self._position_jitter:g}, {self._clutter} fragments of other digits, "
            f"noise {self._noise:g}.",
            "Training, validation and test images use different source digits, the same in every run.",
        ]


def split_sources() -> dict[Split, tuple[Array, npt.NDArray[np.int64]]]:
    """Return the 8 x 8 digits (in 0..1) and their labels for each split: 4 parts training, 1 validation, 1 test."""
    bunch = load_digits()
    digits = (bunch.images / 16).astype(np.float32)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    names = [str(digit) for digit in range(10)]
    keys = image_keys(len(labels), "cluttered_digits")
    rest, test = split_stratified(labels, keys, _SHARE["test"] / sum(_SHARE.values()), names)
    train, val = split_stratified(labels[rest], keys[rest.numpy()], _SHARE["val"] / (sum(_SHARE.values()) - 1), names)
    parts = {"train": rest[train], "val": rest[val], "test": test}
    return {split: (digits[parts[split].numpy()], labels[parts[split]].numpy()) for split in SPLITS}


def draw_background(count: int, size: int, generator: np.random.Generator) -> Array:
    """Return images (count, 3, size, size) that run from one random colour of the darker half towards another."""
    colours = generator.random((2, count, 3, 1, 1), dtype=np.float32) / 2
    direction = generator.random((2, count, 1, 1, 1), dtype=np.float32) - np.float32(0.5)
    ramp = (np.arange(size, dtype=np.float32) + 0.5) / np.float32(size) - np.float32(0.5)
    way = np.float32(0.5) + direction[0] * ramp[:, None] + direction[1] * ramp[None, :]
    return colours[0] + way * (colours[1] - colours[0])


def draw_colours(count: int, low: float, high: float, generator: np.random.Generator) -> Array:
    """Return random colours (count, 3), each channel uniform from ``low`` to ``high``."""
    return np.float32(low) + np.float32(high - low) * generator.random((count, 3), dtype=np.float32)


def paint(canvas: Array, patches: Array, corners: Array, sides: Array, colours: Array) -> None:
    """Lay scaled patches over images, in place.

    Args:
        canvas: (count, 3, size, size) in 0..1.
        patches: Coverage (count, n, n) in 0..1.
        corners: Top and left of each patch in pixels (count, 2), may be outside.
        sides: Height and width to scale each patch to, in pixels (count, 2).
        colours: (count, 3) in 0..1.
    """
    size, cells = canvas.shape[-1], patches.shape[-1]
    rows = interpolation_weights(size, cells, corners[:, 0], sides[:, 0])
    columns = interpolation_weights(size, cells, corners[:, 1], sides[:, 1])
    # Sums in a fixed order rather than a matrix product, whose rounding would depend on the machine.
    coverage = np.zeros((len(canvas), size, size), dtype=np.float32)
    for column in range(cells):
        stretched = np.zeros((len(canvas), size), dtype=np.float32)
        for row in range(cells):
            stretched += rows[row] * patches[:, row, column, None]
        coverage += stretched[:, :, None] * columns[column][:, None, :]
    canvas += coverage[:, None] * (colours[:, :, None, None] - canvas)


def interpolation_weights(size: int, cells: int, start: Array, side: Array) -> Array:
    """Return the share of each cell in each pixel, for a row of cells scaled to ``side`` pixels from ``start`` on.

    Linear interpolation between the centres of cells, fading to nothing outside: (cells, count, size).
    """
    pixels = np.arange(size, dtype=np.float32) + np.float32(0.5)
    position = (pixels - start[:, None]) * (np.float32(cells) / side)[:, None]
    centres = np.arange(cells, dtype=np.float32) + np.float32(0.5)
    return np.maximum(1 - np.abs(position - centres[:, None, None]), 0, dtype=np.float32)
