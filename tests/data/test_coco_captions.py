"""People's own captions: what is read, held out, left out and refused."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data import create_data
from zoo.data.coco_captions import read_captions


def write(folder, count=20, *, name="captions.json", prefix="image", missing=(), **changes):
    """Write images and a file of captions; return the options of a data module that reads them."""
    folder.mkdir(exist_ok=True)
    content = {"info": {"year": 2017}, "images": [], "annotations": []}
    for number in range(count):
        file = f"{prefix}{number}.png"
        if number not in missing:
            pixels = np.full((20, 30, 3), 5 * number, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / file)
        content["images"].append({"id": 100 + number, "file_name": file, "height": 20})
        for words in (f"A thing, number {number}.", "one more thing"):
            content["annotations"].append(
                {"id": len(content["annotations"]), "image_id": 100 + number, "caption": words}
            )
    content.update(changes)
    (folder.parent / name).write_text(json.dumps(content), encoding="utf-8")
    return {"root": str(folder), "captions": str(folder.parent / name), "num_workers": 0, "image_size": 16}


def test_images_and_captions_are_read_split_and_batched(tmp_path):
    options = write(tmp_path / "images")
    data = create_data("coco_captions", **options, batch_size=4, min_word_count=1)
    data.check()
    names = [name for split in data.splits for name in data.sample_names(split)]
    assert sorted(names) == sorted(f"image{number}.png" for number in range(20))
    assert (data.num_train, data.num_val, data.num_test) == (16, 2, 2)
    for split in data.splits:
        for name, captions in zip(data.sample_names(split), data.references(split), strict=True):
            number = name.removeprefix("image").removesuffix(".png")
            assert captions == [["a", "thing", "number", number], ["one", "more", "thing"]]
    batch = data.prepare_batch(next(iter(data.train_dataloader())), training=True)
    assert batch.images.shape == (4, 3, 16, 16)
    brightness = (batch.images[:, 0, 8, 8] * 0.229 + 0.485) * 255
    numbers = [
        int(data.sample_names("train")[index].removeprefix("image").removesuffix(".png")) for index in batch.indices
    ]
    torch.testing.assert_close(brightness, 5.0 * torch.tensor(numbers), atol=0.01, rtol=0)
    assert data.regions("test") is None
    assert "Test: 10% of the images" in data.describe()


def test_the_vocabulary_knows_no_word_of_held_out_captions(tmp_path):
    data = create_data("coco_captions", **write(tmp_path / "images"), min_word_count=1, batch_size=2)
    held_out = {words[0][3] for split in ("val", "test") for words in data.references(split)}
    assert len(held_out) == 4
    assert not held_out & set(data.output_names())
    assert data.share_of_unknown_words("test") == pytest.approx(1 / 7)


def test_the_split_goes_by_the_name_and_not_by_the_order_of_the_file(tmp_path):
    options = write(tmp_path / "images")
    first = create_data("coco_captions", **options)
    names = {split: set(first.sample_names(split)) for split in first.splits}
    path = tmp_path / "captions.json"
    content = json.loads(path.read_text())
    content["images"].reverse()
    path.write_text(json.dumps(content))
    again = create_data("coco_captions", **options)
    assert {split: set(again.sample_names(split)) for split in again.splits} == names


def test_test_captions_of_their_own_with_their_own_images(tmp_path):
    options = write(tmp_path / "images")
    test = write(tmp_path / "others", 3, name="test.json", prefix="other")
    data = create_data("coco_captions", **options, test_captions=test["captions"], test_root=test["root"])
    assert data.sample_names("test") == ["other0.png", "other1.png", "other2.png"]
    assert data.num_train + data.num_val == 20
    with pytest.raises(ValueError, match=r"test_fraction .0.2. has no effect"):
        create_data("coco_captions", **options, test_captions=test["captions"], test_fraction=0.2)
    with pytest.raises(ValueError, match=r"test_root .+ has no effect without test_captions"):
        create_data("coco_captions", **options, test_root=test["root"])


def test_missing_images_are_named_or_left_out(tmp_path):
    options = write(tmp_path / "images", missing=(3, 7))
    with pytest.raises(ValueError, match=r"2 of 20 images of .+ are not in .+: image3\.png, image7\.png$"):
        create_data("coco_captions", **options).setup()
    data = create_data("coco_captions", **options, on_missing="skip")
    assert data.num_train + data.num_val + data.num_test == 18
    assert "2 that are not there" in data.describe()


def test_damaged_images_are_named_before_training(tmp_path):
    options = write(tmp_path / "images")
    (tmp_path / "images/image5.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"1 images of .+ cannot be read:\n  .+image5\.png"):
        create_data("coco_captions", **options).setup()


def test_images_without_a_caption_are_left_out_and_counted(tmp_path):
    options = write(tmp_path / "images")
    path = tmp_path / "captions.json"
    content = json.loads(path.read_text())
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != 104]
    path.write_text(json.dumps(content))
    data = create_data("coco_captions", **options)
    assert data.num_train + data.num_val + data.num_test == 19
    assert "Left out: 1 images without a caption" in data.describe()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "must hold the lists 'images' and 'annotations'"),
        ({"images": [{"id": 1}]}, "an entry of 'images' has no file_name"),
        ({"images": [{"id": 1, "file_name": "../a.png"}]}, "'../a.png' must be relative to the folder"),
        ({"images": [{"id": 1, "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}]}, "two images have the id 1"),
        ({"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "a.png"}]}, "a.png is listed twice"),
        ({"annotations": [{"image_id": 100}]}, "an entry of 'annotations' has no caption"),
        ({"annotations": [{"image_id": 7, "caption": "x y"}]}, r"a caption \('x y'\) is of image_id 7, which is no"),
    ],
)
def test_a_file_in_another_layout_is_refused_with_its_name_and_the_entry(tmp_path, changes, message):
    options = write(tmp_path / "images", 2, **changes)
    with pytest.raises(ValueError, match=f"captions.json.*{message}"):
        read_captions(tmp_path / "captions.json")
    assert options["captions"].endswith("captions.json")


def test_a_file_that_is_missing_or_no_json_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no file of captions"):
        read_captions(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json is no JSON"):
        read_captions(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "wrong", [{"validation_fraction": 0.0}, {"test_fraction": 1.0}, {"on_missing": "no"}, {"num_workers": -1}]
)
def test_values_out_of_range_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        create_data("coco_captions", **{**write(tmp_path / "images"), **wrong})
