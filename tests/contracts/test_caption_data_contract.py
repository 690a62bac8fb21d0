"""What every registered data set of captions must do, on a small instance of each."""

import inspect
import json
from typing import get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data import create_data, list_caption_data, list_data
from zoo.models.caption_words import END, SPECIAL_WORDS, START
from zoo.registry import CAPTION_DATASETS, CAPTIONERS, MODELS

NAMES = list_caption_data()


@pytest.fixture(params=NAMES)
def small(request, tmp_path):
    """A function that creates a small instance of each registered data set, with further options."""
    options: dict[str, object] = {"batch_size": 4, "eval_batch_size": 8}
    if request.param == "caption_scenes":
        options["num_images"] = 110
    else:
        content: dict[str, list[object]] = {"images": [], "annotations": []}
        for number in range(40):
            file = f"{number}.png"
            Image.fromarray(np.full((9, 11, 3), 6 * number, dtype=np.uint8)).save(tmp_path / file)
            content["images"].append({"id": number, "file_name": file})
            for words in (f"thing {number % 3}", "one thing"):
                content["annotations"].append({"image_id": number, "caption": words})
        (tmp_path / "captions.json").write_text(json.dumps(content))
        options |= {"root": str(tmp_path), "captions": str(tmp_path / "captions.json"), "image_size": 16}
        options |= {"num_workers": 0}
    return lambda **further: create_data(request.param, **options | further)


def test_names_of_captions_and_of_classes_differ():
    assert {"caption_scenes", "coco_captions"} <= set(NAMES)
    assert not set(NAMES) & set(list_data())
    assert not set(CAPTIONERS) & set(MODELS)


def test_batches_have_the_promised_shapes_types_and_words(small):
    data = small()
    data.check()
    for split in data.splits:
        count = 0
        for batch in data.create_loader(split):
            prepared = data.prepare_batch(batch, training=split == "train")
            assert prepared.images.shape == (len(batch.indices), data.in_channels, *data.image_size)
            assert prepared.images.dtype == torch.float32
            assert prepared.words.shape == (len(batch.indices), data.max_words + 2)
            assert prepared.words[:, 0].eq(START).all()
            assert prepared.words.eq(END).sum(1).eq(1).all()
            for index, words in zip(prepared.indices.tolist(), prepared.words.tolist(), strict=True):
                known = [
                    [word if word in data.vocabulary else "<unknown>" for word in reference]
                    for reference in data.references(split)[index]
                ]
                assert data.vocabulary.decode(words) in known
            count += len(batch.indices)
        assert count == (data.num_train // 4 * 4 if split == "train" else data.num_images(split))


def test_splits_are_disjoint_and_three_of_them_are_always_there(small):
    data = small()
    names = [name for split in data.splits for name in data.sample_names(split)]
    assert data.splits[:3] == ("train", "val", "test")
    assert len(names) == len(set(names))


def test_order_repeats_for_the_same_seed_and_changes_with_seed_and_epoch(small):
    def order_of(data, epoch):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        return [batch.indices.tolist() for batch in loader]

    assert order_of(small(), 0) == order_of(small(), 0)
    assert order_of(small(), 0) != order_of(small(), 1)
    assert order_of(small(), 0) != order_of(small(shuffle_seed=1), 0)


def test_a_demanded_vocabulary_is_taken_as_it_is(small):
    words = (*SPECIAL_WORDS, "thing", "a")
    assert small(class_names=words).output_names() == words


def test_description_names_data_set_counts_and_preprocessing(small):
    data = small()
    assert data.describe().startswith(f"{data.name}: {data.num_train} training, {data.num_val} validation, ")
    assert data.preprocessing.describe() in data.describe()


def test_unknown_options_are_refused_with_the_nearest(small):
    with pytest.raises(ValueError, match=r"no option 'batch_sise'\. Did you mean 'batch_size'\?"):
        small(batch_sise=4)


@pytest.mark.parametrize("name", NAMES)
def test_options_are_keyword_only_typed_documented_and_shared(name):
    factory = CAPTION_DATASETS[name]
    parameters = list(inspect.signature(factory).parameters.values())
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    assert {"batch_size", "eval_batch_size", "shuffle_seed", "class_names"} <= names
    assert names <= set(get_type_hints(factory.__init__))
    assert all(f"{option}: " in (factory.__doc__ or "") for option in names)
