"""Scenes: what the caption says is what is in the picture, and held-out pairs are nowhere else."""

import itertools

import numpy as np
import pytest
import torch

from zoo.data import create_data
from zoo.data.caption_scenes import CaptionScenes, caption_of
from zoo.data.scene_drawing import RGB
from zoo.data.scene_grammar import COLOURS, HELD_OUT, KINDS, MAX_WORDS, NUMBERS, Group, describe_groups
from zoo.data.scene_layout import draw_scene

SPLITS = ("train", "val", "test", "held_out")


@pytest.fixture(scope="module")
def scenes():
    return CaptionScenes(num_images=880, batch_size=16)


def pairs_of(scene):
    return {(group.colour, group.kind) for group in scene.groups}


def test_held_out_pairs_are_in_every_held_out_scene_and_in_no_other(scenes):
    for split in SPLITS:
        for scene in scenes.scenes(split):
            assert bool(pairs_of(scene) & HELD_OUT) == (split == "held_out")


def test_each_kind_lacks_one_colour_and_training_shows_every_colour_and_kind(scenes):
    assert {kind for _, kind in HELD_OUT} == set(KINDS)
    assert {colour for colour, _ in HELD_OUT} == set(COLOURS)
    assert len(HELD_OUT) == len(KINDS)
    seen = set.union(*(pairs_of(scene) for scene in scenes.scenes("train")))
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {kind for _, kind in seen} == set(KINDS)


def test_captions_say_what_is_there(scenes):
    for scene in itertools.chain(*(scenes.scenes(split) for split in SPLITS)):
        words = caption_of(scene).split()
        assert len(words) <= MAX_WORDS
        for number, group in enumerate(scene.groups):
            assert group.colour in words
            assert sum(thing.group == number for thing in scene.things) == group.number
        if scene.relation is None:
            assert words[0] == NUMBERS[scene.groups[0].number - 1]
            assert [group.number for group in scene.groups] == sorted((g.number for g in scene.groups), reverse=True)
            continue
        first, second = scene.things
        assert first.side > second.side
        along = {"left of": (1, 0), "right of": (-1, 0), "above": (0, 1), "below": (0, -1)}[scene.relation]
        right = second.left + second.side / 2 - first.left - first.side / 2
        down = second.top + second.side / 2 - first.top - first.side / 2
        assert right * along[0] + down * along[1] > abs(right * along[1]) + abs(down * along[0])


def test_things_lie_inside_the_image_and_never_touch(scenes):
    for scene in scenes.scenes("train"):
        for thing in scene.things:
            assert 0 <= thing.top <= 48 - thing.side
            assert 0 <= thing.left <= 48 - thing.side
        for one, other in itertools.combinations(scene.things, 2):
            apart = max(
                other.left - one.left - one.side, one.left - other.left - other.side,
                other.top - one.top - one.side, one.top - other.top - other.side,
            )  # fmt: skip
            assert apart >= 1


def test_boxes_hold_the_colour_of_the_thing_and_the_rest_is_dark(scenes):
    images = scenes._sets()["train"].images.numpy().astype(int)
    for image, scene in zip(images[:100], scenes.scenes("train"), strict=False):
        outside = np.ones(image.shape[:2], dtype=bool)
        for thing in scene.things:
            box = slice(thing.top, thing.top + thing.side), slice(thing.left, thing.left + thing.side)
            outside[box] = False
            pixels = image[box].reshape(-1, 3)
            brightest = pixels[pixels.sum(1).argmax()]
            assert np.abs(brightest - RGB[scene.groups[thing.group].colour]).max() <= 45
        assert image[outside].max() <= 80


def test_word_regions_are_the_boxes_of_the_group_a_word_speaks_of(scenes):
    regions = scenes.regions("train")
    assert regions.boxes.shape == (len(scenes.scenes("train")), 5, 4)
    for row, scene in enumerate(scenes.scenes("train")[:50]):
        for place, word in enumerate(describe_groups(scene.groups, scene.relation)):
            spoken = [thing.group == word.group for thing in scene.things]
            assert regions.speaks_of[row, place, : len(spoken)].tolist() == spoken
        left, top, right, bottom = (48 * regions.boxes[row, 0]).tolist()
        thing = scene.things[0]
        assert (left, top, right - left, bottom - top) == pytest.approx((thing.left, thing.top, thing.side, thing.side))
    assert not regions.speaks_of[regions.boxes[:, None, :, 2].expand_as(regions.speaks_of) == 0].any()


def test_the_seed_decides_everything_and_the_run_nothing():
    first, again = CaptionScenes(num_images=88), CaptionScenes(num_images=88, shuffle_seed=5)
    assert first.digest() == again.digest()
    assert first.digest() != CaptionScenes(num_images=88, seed=1).digest()


def test_digits_of_test_images_are_not_those_of_training():
    """The pictures of a split are drawn from digits of its own."""
    from zoo.data.cluttered_digits import split_sources

    sources = split_sources()
    train = {digit.tobytes() for digit in sources["train"][0]}
    assert not any(digit.tobytes() in train for digit in sources["test"][0])


def test_larger_images_hold_larger_things():
    generator = np.random.default_rng(0)
    scenes = [draw_scene(generator, size=96, held_out=False) for _ in range(50)]
    assert min(thing.side for scene in scenes for thing in scene.things) == 18
    assert CaptionScenes(image_size=96, num_images=44).image_size == (96, 96)


def test_relations_need_no_plural_and_the_grammar_writes_articles():
    words = describe_groups((Group(1, "white", "8"), Group(1, "red", "cross")), "right of")
    assert " ".join(word.text for word in words) == "a white 8 right of a red cross"
    words = describe_groups((Group(3, "white", "8"), Group(2, "red", "cross")))
    assert " ".join(word.text for word in words) == "three white 8s and two red crosses"


def test_batches_hold_captions_between_start_and_end(scenes):
    batch = next(iter(scenes.val_dataloader()))
    prepared = scenes.prepare_batch(batch, training=False)
    assert prepared.images.dtype == torch.float32
    assert prepared.words.shape == (len(batch.indices), MAX_WORDS + 2)
    written = [scenes.vocabulary.decode(words) for words in prepared.words.tolist()]
    assert written == [scenes.references("val")[index][0] for index in batch.indices.tolist()]


@pytest.mark.parametrize("wrong", [{"image_size": 47}, {"num_images": 43}, {"seed": -1}, {"batch_size": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        create_data("caption_scenes", **wrong)
