import json
import os
from pathlib import Path

import pytest
from PIL import Image

from zoo.data import create_data
from zoo.data.imagenet import read_class_table, readable_name
from zoo.preprocessing import PRESETS


def open_imagenet(root, **options):
    return create_data("imagenet", **{"root": str(root), "num_workers": 0, "batch_size": 2} | options)


def test_table_has_a_thousand_ids_and_as_many_names():
    table = read_class_table()
    assert len(table) == len(set(table.values())) == 1000
    assert list(table) == sorted(table)  # the usual class numbers follow the ids
    assert all(len(wordnet_id) == 9 and wordnet_id.startswith("n") for wordnet_id in table)
    assert (table["n01440764"], table["n15075141"]) == ("tench", "toilet_tissue")


def test_table_agrees_with_torchvision():
    from torchvision.models import ResNet18_Weights

    names = ResNet18_Weights.DEFAULT.meta["categories"]
    different = [
        (ours, theirs)
        for ours, theirs in zip(read_class_table().values(), names, strict=True)
        if readable_name(theirs) != ours
    ]
    # Torchvision calls the dog as the garment, but for the capital.
    assert different == [("cardigan_welsh_corgi", "Cardigan")]


@pytest.mark.parametrize("written", ["n02102040", "English springer", "english_springer", "ENGLISH-SPRINGER"])
def test_a_class_may_be_written_in_many_ways(written):
    assert readable_name(written) == "english_springer"


def test_folders_by_id_and_in_words_give_the_same_classes_in_the_usual_order(tmp_path, make_images):
    make_images(tmp_path / "ids" / "train", ["n02102040", "n01440764", "n03000684"], count=4)
    make_images(tmp_path / "ids" / "val", ["n02102040", "n01440764", "n03000684"], count=2)
    make_images(tmp_path / "words", ["chain saw", "English springer", "tench"], count=5)
    for name in ("ids", "words"):
        assert open_imagenet(tmp_path / name).class_names == ("tench", "english_springer", "chain_saw")


def test_subset_is_taken_in_the_order_asked_for_and_the_rest_left_out(tmp_path, make_images):
    folders = ["n02102040", "n01440764", "n03000684"]
    make_images(tmp_path / "train", folders, count=4)
    make_images(tmp_path / "val", folders, count=2)
    data = open_imagenet(tmp_path, classes=["English springer", "n01440764"])
    data.check(num_classes=2)
    assert data.class_names == ("english_springer", "tench")
    assert data.num_test == 4
    for name, label in zip(data.sample_names("test"), data.labels("test").tolist(), strict=True):
        assert readable_name(name.split("/")[1]) == data.class_names[label]


def test_classes_of_a_weight_card_match_whatever_they_are_written_like(tmp_path, make_images):
    make_images(tmp_path, ["n02102040", "n01440764"], count=5)
    data = open_imagenet(tmp_path, class_names=["English springer", "chain saw", "tench"])
    data.setup()
    assert data.class_names == ("english_springer", "chain_saw", "tench")
    assert data.labels("train").unique().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["tench", "tabby"], "class 'tabby' has no folder"),
        (["tench", "n01440764"], "class 'n01440764' is asked for twice"),
    ],
)
def test_classes_that_cannot_be_taken_are_named(tmp_path, make_images, classes, message):
    make_images(tmp_path, ["tench", "church"], count=3)
    with pytest.raises(ValueError, match=message):
        open_imagenet(tmp_path, classes=classes)


def test_two_folders_of_one_class_are_refused(tmp_path, make_images):
    make_images(tmp_path, ["tench", "n01440764"], count=3)
    with pytest.raises(ValueError, match="folders 'n01440764' and 'tench' are the same class, tench"):
        open_imagenet(tmp_path)


def test_folders_that_are_no_imagenet_class_keep_their_names_and_come_last(tmp_path, make_images):
    make_images(tmp_path, ["My cats", "church"], count=3)
    assert open_imagenet(tmp_path).class_names == ("church", "My cats")


def test_transforms_are_the_usual_ones(tmp_path, make_images, monkeypatch):
    make_images(tmp_path / "imagenet", ["tench", "church"], count=5)
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    data = create_data("imagenet", num_workers=0)
    assert data.preprocessing == PRESETS["imagenet_224"]
    assert "a random part of at least 8% of the area" in data.describe_training()
    assert data.name == "imagenet"


@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="ZOO_DATA is not set: needs the photographs of imagenette160")
def test_ids_of_the_photographs_at_hand_are_those_of_the_table():
    root = Path(os.environ["ZOO_DATA"]) / "imagenette160"
    for name, entry in json.loads((root / "classes.json").read_text())["classes"].items():
        assert list(read_class_table().items())[entry["imagenet_index"]] == (entry["wnid"], name)
    data = open_imagenet(root, classes=["tench", "n03888257"], check_files=False, image_size=32)
    image = next(iter(data.test_dataloader())).images[0]
    path = root / data.sample_names("test")[0]
    assert image.tolist() == data.preprocessing.to_pixels(Image.open(path)).tolist()
