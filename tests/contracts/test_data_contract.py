"""What every registered data set must do, on a small instance of each."""

import inspect
import pickle
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets
from torchvision.datasets.utils import calculate_md5

import zoo.data
from zoo.data import create_data, list_data
from zoo.registry import DATASETS

NAMES = list_data()


def write_cifar(root: Path, source: type[datasets.CIFAR10], num_classes: int) -> type[datasets.CIFAR10]:
    """Write a set in the layout of CIFAR, and return the class that reads it."""
    folder = root / source.base_folder
    folder.mkdir()
    generator = np.random.default_rng(0)
    lists: dict[str, object] = {}
    for attribute in ("train_list", "test_list"):
        lists[attribute] = []
        for name, _ in getattr(source, attribute):
            pixels = generator.integers(0, 256, (2 * num_classes, 3072), dtype=np.uint8)
            labels = [number % num_classes for number in range(2 * num_classes)]
            (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": labels}))
            lists[attribute].append([name, calculate_md5(folder / name)])
    meta = folder / source.meta["filename"]
    meta.write_bytes(pickle.dumps({source.meta["key"]: [f"class_{number}" for number in range(num_classes)]}))
    lists["meta"] = source.meta | {"md5": calculate_md5(meta)}
    return type(source.__name__, (source,), lists)


@pytest.fixture(params=NAMES)
def small(request, tmp_path, monkeypatch):
    """A function that creates a small instance of each registered data set, with further options."""
    name = request.param
    options: dict[str, object] = {"batch_size": 4, "eval_batch_size": 8}
    if name == "cluttered_digits":
        options["num_images"] = 90
    elif name in ("cifar10", "cifar100"):
        num_classes = 10 if name == "cifar10" else 100
        monkeypatch.setattr(DATASETS[name], "_source", write_cifar(tmp_path, DATASETS[name]._source, num_classes))
        options["root"] = str(tmp_path)
    else:
        for label, folder in enumerate(("tench", "church", "golf_ball")):
            (tmp_path / folder).mkdir()
            for number in range(10):
                pixels = np.full((9, 11, 3), 20 * number + label, dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
        options |= {"root": str(tmp_path), "image_size": 16, "num_workers": 0}
    return lambda **further: create_data(name, **options | further)


def test_every_expected_data_set_is_registered():
    assert {"cifar10", "cifar100", "cluttered_digits", "image_folder", "imagenet"} <= set(NAMES)


def test_batches_have_the_promised_shapes_types_and_ranges(small):
    data = small()
    data.check(num_classes=data.num_classes)
    for split, training in (("train", True), ("val", False), ("test", False)):
        count = 0
        for batch in data.create_loader(split):
            size = len(batch.labels)
            assert batch.images.shape == (size, data.in_channels, *data.image_size)
            assert batch.images.dtype == torch.uint8
            assert batch.labels.dtype == batch.indices.dtype == torch.int64
            assert torch.equal(data.labels(split)[batch.indices], batch.labels)
            prepared = data.prepare_batch(batch, training=training)
            assert prepared.images.shape == batch.images.shape
            assert prepared.images.dtype == torch.float32
            assert prepared.images.isfinite().all()
            count += size
        assert count == (data.num_train // 4 * 4 if training else data.num_images(split))


def test_splits_are_disjoint_and_hold_every_class(small):
    data = small()
    names = [data.sample_names(split) for split in ("train", "val", "test")]
    together = [name for split in names for name in split]
    assert len(together) == len(set(together)) == data.num_train + data.num_val + data.num_test
    for split in ("train", "val", "test"):
        assert data.labels(split).unique().tolist() == list(range(data.num_classes))


def test_order_and_augmentation_repeat_for_the_same_seed_and_change_with_seed_and_epoch(small):
    def epoch_of(data, epoch):
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        batches = [data.prepare_batch(batch, training=True) for batch in loader]
        return torch.cat([batch.indices for batch in batches]), torch.cat([batch.images for batch in batches])

    first, again, other_epoch = epoch_of(small(), 0), epoch_of(small(), 0), epoch_of(small(), 1)
    other_seed = epoch_of(small(shuffle_seed=1), 0)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other_epoch[0])
    assert not torch.equal(first[0], other_seed[0])


def test_evaluation_never_changes(small):
    images = [torch.cat([batch.images for batch in small(shuffle_seed=seed).test_dataloader()]) for seed in (0, 1)]
    assert torch.equal(*images)


def test_labels_follow_demanded_classes(small):
    plain = small()
    demanded = ["unseen", *reversed(plain.class_names)]
    moved = small(class_names=demanded)
    assert moved.class_names == tuple(demanded)
    for split in ("train", "val", "test"):
        assert torch.equal(moved.labels(split), plain.num_classes - plain.labels(split))
    with pytest.raises(ValueError, match="the data has class"):
        small(class_names=plain.class_names[1:])


def test_description_names_data_set_counts_and_preprocessing(small):
    data = small()
    text = data.describe()
    assert text.startswith(f"{data.name}: {data.num_classes} classes, {data.num_train} training, ")
    assert data.preprocessing.describe() in text
    assert data.describe_training() in text


def test_unknown_options_are_refused_with_the_nearest(small):
    with pytest.raises(ValueError, match=r"no option 'batch_sise'\. Did you mean 'batch_size'\?"):
        small(batch_sise=4)


def test_unknown_data_set_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown data set 'cifar1O'\. Did you mean 'cifar10'\?"):
        zoo.data.create_data("cifar1O")


@pytest.mark.parametrize("name", NAMES)
def test_options_are_keyword_only_typed_documented_and_shared(name):
    factory = DATASETS[name]
    parameters = list(inspect.signature(factory).parameters.values())
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    assert {"batch_size", "eval_batch_size", "shuffle_seed", "class_names"} <= names
    assert names <= set(get_type_hints(factory.__init__))
    documented = factory.__doc__ or ""
    if "with the options of" not in documented:
        assert all(f"{option}: " in documented for option in names)
