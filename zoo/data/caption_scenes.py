"""Built-in captions: rendered scenes of coloured shapes and handwritten digits, described in a small language."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from zoo.data.caption_module import CaptionDataModule, CaptionedImages, WordRegions
from zoo.data.cluttered_digits import split_sources
from zoo.data.scene_drawing import RGB, digit_coverage, draw_backgrounds, draw_colour_jitter, paint, shape_coverage
from zoo.data.scene_grammar import COLOURS, HELD_OUT, MAX_WORDS, NO_GROUP, SHAPES, describe_groups
from zoo.data.scene_layout import NATIVE_SIZE, Scene, draw_scene
from zoo.data.split_module import SPLITS, Split, TensorSet
from zoo.preprocessing import Preprocessing
from zoo.registry import CAPTION_DATASETS

Digits = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]

_SHARE = {"train": 8, "val": 1, "test": 1, "held_out": 1}
_MOST_THINGS = 5
_MEAN, _STD = 0.25, 0.2


@CAPTION_DATASETS.register("caption_scenes")
class CaptionScenes(CaptionDataModule):
    """Scenes of one to five coloured shapes and digits on a dark background, each with its one caption.

    A caption counts ("three red circles and one blue 7") or relates ("a white ring left of a green square"); the
    grammar stands in :mod:`zoo.data.scene_grammar`. Every thing has a known box. Digits are scikit-learn's handwritten
    ones; training, validation and the other splits use different ones.

    The fourth split, ``held_out``, tests whether words are understood one by one: each of its scenes holds a pair of
    colour and kind that no other split ever shows, though it shows the colour and the kind. There is one such pair for
    each of the 16 kinds.

    The scenes depend on the options and on ``seed`` alone, the same on every machine, whatever the seed of the run.

    Args:
        image_size: Side of an image in pixels, at least 48.
        num_images: Images in all: 8 of 11 for training, one each for validation, test and held-out pairs; at least 44.
        seed: Seed of the scenes.
        batch_size: Training images per step and process.
        eval_batch_size: Images of other splits per step and process.
        shuffle_seed: Seed of the order of training images.
        class_names: The vocabulary, as a weight card gives it; ``None`` collects it from the training captions.

    Raises:
        ValueError: An option is out of its range.
    """

    def __init__(
        self,
        *,
        image_size: int = NATIVE_SIZE,
        num_images: int = 13_200,
        seed: int = 0,
        batch_size: int = 64,
        eval_batch_size: int = 256,
        shuffle_seed: int = 0,
        class_names: Sequence[str] | None = None,
    ) -> None:
        if image_size < NATIVE_SIZE:
            raise ValueError(f"image_size ({image_size}) must be at least {NATIVE_SIZE}: digits of 8 pixels are in it")
        if num_images < 4 * sum(_SHARE.values()):
            raise ValueError(f"num_images ({num_images}) must be at least {4 * sum(_SHARE.values())}")
        if seed < 0:
            raise ValueError(f"seed ({seed}) must be at least 0")
        self._size = image_size
        self._num_images = num_images
        self._seed = seed
        super().__init__(
            name="caption_scenes",
            preprocessing=Preprocessing(image_size, image_size, mean=(_MEAN,) * 3, std=(_STD,) * 3),
            max_words=MAX_WORDS,
            min_word_count=1,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            shuffle_seed=shuffle_seed,
            demanded_words=class_names,
        )
        self._scenes: dict[Split, list[Scene]] = {}

    @override
    def read_splits(self) -> dict[Split, CaptionedImages]:
        sources = split_sources()
        other = self._num_images // sum(_SHARE.values())
        result: dict[Split, CaptionedImages] = {}
        for number, name in enumerate(_SHARE):
            split = cast(Split, name)
            count = self._num_images - 3 * other if split == "train" else other
            generator = np.random.default_rng([self._seed, number])
            size = self._size
            scenes = [draw_scene(generator, size=size, held_out=split == "held_out") for _ in range(count)]
            pixels = draw_images(scenes, size, sources[split if split in SPLITS else "test"], generator)
            images = TensorSet(torch.from_numpy(pixels), torch.zeros(count, dtype=torch.int64), split)
            captions = [[caption_of(scene)] for scene in scenes]
            self._scenes[split] = scenes
            result[split] = CaptionedImages(images, captions, find_regions(scenes, size))
        return result

    def scenes(self, split: Split) -> list[Scene]:
        """Return what is in each image of a split."""
        self._read()
        return self._scenes[split]

    @override
    def describe_source(self) -> list[str]:
        pairs = ", ".join(f"{colour} {kind}" for colour, kind in sorted(HELD_OUT))
        return [
            f"Made on the spot from {len(COLOURS)} colours, {len(SHAPES)} shapes and scikit-learn's handwritten "
            f"digits, seed {self._seed}.",
            f"Only in held-out images: {pairs}.",
        ]


def caption_of(scene: Scene) -> str:
    """Return the caption of a scene."""
    return " ".join(word.text for word in describe_groups(scene.groups, scene.relation))


def draw_images(
    scenes: Sequence[Scene], size: int, digits: Digits, generator: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Return the pictures of scenes, uint8 (scenes, size, size, 3), with digits drawn from those given."""
    pixels, labels = digits
    by_label = {str(label): pixels[labels == label] for label in range(10)}
    images = draw_backgrounds(len(scenes), size, generator)
    jitter = draw_colour_jitter((len(scenes), _MOST_THINGS, 3), generator)
    for image, scene, moves in zip(images, scenes, jitter, strict=True):
        for thing, move in zip(scene.things, moves, strict=False):
            group = scene.groups[thing.group]
            if group.kind in SHAPES:
                coverage = shape_coverage(group.kind, thing.side)
            else:
                known = by_label[group.kind]
                coverage = digit_coverage(known[generator.integers(len(known))], thing.side)
            paint(image, coverage, thing.top, thing.left, move + RGB[group.colour])
    return images


def find_regions(scenes: Sequence[Scene], size: int) -> WordRegions:
    """Return the boxes of all things, and which words of the caption speak of which."""
    boxes = np.zeros((len(scenes), _MOST_THINGS, 4), dtype=np.float32)
    groups = np.full((len(scenes), 1, _MOST_THINGS), NO_GROUP)
    words = np.full((len(scenes), MAX_WORDS, 1), NO_GROUP)
    for row, scene in enumerate(scenes):
        for place, (group, top, left, side) in enumerate(scene.things):
            boxes[row, place] = left, top, left + side, top + side
            groups[row, 0, place] = group
        for place, word in enumerate(describe_groups(scene.groups, scene.relation)):
            words[row, place] = word.group
    speaks_of = (words == groups) & (words != NO_GROUP)
    return WordRegions(torch.from_numpy(boxes / np.float32(size)), torch.from_numpy(speaks_of))
