import contextlib
import itertools
import logging
import os
import shutil
import unicodedata
from pathlib import Path

import pytest
import torch
from PIL import Image

from zoo.data import create_data, image_files, image_folder


def open_folder(root, **options):
    return create_data(
        "image_folder", **{"root": str(root), "image_size": 8, "num_workers": 0, "batch_size": 4} | options
    )


def class_of(name):
    return name.split("/")[-2]


def check_labels_follow_names(data):
    for split in ("train", "val", "test"):
        for name, label in zip(data.sample_names(split), data.labels(split).tolist(), strict=True):
            assert data.class_names[label] == class_of(name)


def test_without_split_folders_every_class_is_divided_by_hash(tmp_path, make_images):
    make_images(tmp_path, "cab", count=20)
    data = open_folder(tmp_path)
    assert data.class_names == ("a", "b", "c")
    assert [data.labels(split).bincount().tolist() for split in ("train", "val", "test")] == [
        [14] * 3,
        [2] * 3,
        [4] * 3,
    ]
    names = [name for split in ("train", "val", "test") for name in data.sample_names(split)]
    assert len(set(names)) == 60
    check_labels_follow_names(data)


def test_split_by_hash_is_the_same_in_another_place_and_for_another_seed(tmp_path, make_images):
    make_images(tmp_path / "here", "ab", count=20)
    shutil.copytree(tmp_path / "here", tmp_path / "over" / "there")
    first, second = open_folder(tmp_path / "here"), open_folder(tmp_path / "over" / "there", shuffle_seed=5)
    for split in ("train", "val", "test"):
        assert first.sample_names(split) == second.sample_names(split)


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_three_split_folders_are_taken_as_they_are(tmp_path, make_images, validation):
    for split, count in (("train", 6), (validation, 2), ("test", 3)):
        make_images(tmp_path / split, "ab", count=count)
    data = open_folder(tmp_path)
    assert (data.num_train, data.num_val, data.num_test) == (12, 4, 6)
    assert all(name.startswith(f"{validation}/") for name in data.sample_names("val"))
    check_labels_follow_names(data)


@pytest.mark.parametrize("other", ["val", "test"])
def test_the_only_other_folder_is_the_test_set_and_validation_is_held_out_of_training(tmp_path, make_images, other):
    make_images(tmp_path / "train", "ab", count=10)
    make_images(tmp_path / other, "ab", count=3)
    data = open_folder(tmp_path, validation_fraction=0.3)
    assert (data.num_train, data.num_val, data.num_test) == (14, 6, 6)
    assert all(name.startswith("train/") for name in data.sample_names("val"))
    assert all(name.startswith(f"{other}/") for name in data.sample_names("test"))
    assert f"Test: the folder {other}." in data.describe()
    assert "Validation: 30% of each class of the training images, by a hash of the path" in data.describe()


def test_a_train_folder_alone_gives_all_three_splits(tmp_path, make_images):
    make_images(tmp_path / "train", "ab", count=10)
    data = open_folder(tmp_path, test_fraction=0.3)
    assert (data.num_train, data.num_val, data.num_test) == (12, 2, 6)


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [({"a": 0, "b": 2, "c": 2}, "a"), ({"b": 2, "c": 2}, "a"), ({"a": 2, "b": 2, "c": 2}, None)],
    ids=["empty", "missing", "all there"],
)
def test_labels_do_not_shift_when_an_evaluation_class_is_empty_or_missing(tmp_path, make_images, evaluation, expected):
    make_images(tmp_path / "train", "abc", count=4)
    for name, count in evaluation.items():
        make_images(tmp_path / "test", [name], count=count)
    data = open_folder(tmp_path)
    if expected is None:
        data.setup()
    else:
        with pytest.warns(UserWarning, match=f"test has no images of {expected}: no accuracy for these"):
            data.setup()
    check_labels_follow_names(data)
    assert data.num_classes == 3


@pytest.mark.parametrize("content", ["nothing", "text", "an empty sub-folder"])
def test_training_class_without_images_is_named(tmp_path, make_images, content):
    make_images(tmp_path / "train", "ac", count=4)
    make_images(tmp_path / "test", "ac", count=4)
    (tmp_path / "train" / "b" / "deeper").mkdir(parents=True)
    if content == "text":
        (tmp_path / "train" / "b" / "notes.txt").write_text("no image")
    elif content == "nothing":
        (tmp_path / "train" / "b" / "deeper").rmdir()
    with pytest.raises(ValueError, match=r"too few images of 'b' \(0\): every class needs 2, one for each split"):
        open_folder(tmp_path).setup()


def test_class_too_small_to_hold_images_out_is_named(tmp_path, make_images):
    make_images(tmp_path, "ab", count=5)
    make_images(tmp_path, ["rare"], count=2)
    with pytest.raises(ValueError, match=r"too few images of 'rare' \(2\): every class needs 3"):
        open_folder(tmp_path).setup()


@pytest.mark.parametrize(("stranger", "hint"), [("d", ""), ("A", "Did you mean 'a'"), ("b ", "Did you mean 'b'")])
def test_equally_many_but_different_classes_are_refused_by_name(tmp_path, make_images, stranger, hint):
    make_images(tmp_path / "train", "abc", count=4)
    make_images(tmp_path / "val", ["c", stranger], count=2)
    make_images(tmp_path / "val", ["b" if stranger != "b " else "a"], count=2)
    with pytest.raises(ValueError, match=f"has class {stranger!r}, which the training images lack.*{hint}"):
        open_folder(tmp_path).setup()


def test_demanded_classes_give_the_labels_by_name_and_are_printed(tmp_path, make_images):
    make_images(tmp_path, "cba", count=5)
    data = open_folder(tmp_path, class_names=["c", "x", "a", "b"])
    check_labels_follow_names(data)
    assert data.class_names == ("c", "x", "a", "b")
    assert data.num_classes == 4
    assert "Labels follow the demanded classes by name: a -> 2, b -> 3, c -> 0." in data.describe()
    with pytest.raises(ValueError, match="the data has class 'c'"):
        open_folder(tmp_path, class_names=["a", "b"])


def test_fewer_images_than_a_batch_is_an_error_with_both_numbers(tmp_path, make_images):
    make_images(tmp_path, "ab", count=5)
    data = open_folder(tmp_path, batch_size=8)
    assert data.num_train == 6
    for use in (data.check, data.train_dataloader):
        with pytest.raises(
            ValueError, match="6 training images do not fill one batch of 8: batch_size must be at most 6"
        ):
            use()


def test_litter_and_foreign_files_are_counted_in_one_line(tmp_path, make_images):
    make_images(tmp_path, "ab", count=5)
    make_images(tmp_path, [".ipynb_checkpoints"], count=1)
    for name in ("a/.DS_Store", "a/Thumbs.db", "a/._0.png", "b/notes.txt"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7")
    data = open_folder(tmp_path)
    assert data.class_names == ("a", "b")
    assert "Left out: 4 hidden or foreign files, 0 that cannot be read." in data.describe()


# One of each kind of image


@pytest.fixture
def zoo_of_formats(tmp_path, make_images):
    """A folder with two classes of good images, one of them with every mode and container."""
    make_images(tmp_path, ["odd", "plain"], count=5)
    folder = tmp_path / "odd"
    Image.new("L", (9, 9), 7).save(folder / "grey.JPG")
    Image.new("P", (9, 9), 7).save(folder / "palette.gif")
    Image.new("RGBA", (9, 9), (9, 9, 9, 0)).save(folder / "transparent.webp")
    Image.new("CMYK", (9, 9), (0, 255, 255, 0)).save(folder / "print.jpeg")
    Image.new("I;16", (9, 9), 40_000).save(folder / "deep.png")
    Image.new("1", (9, 9), 1).save(folder / "bits.tiff")
    Image.new("RGB", (40_000, 1), "red").save(folder / "long.png")
    Image.new("RGB", (1, 1), "red").save(folder / "dot.bmp")
    Image.new("RGB", (9, 9), "red").save(folder / "猫 é.png")
    Image.new("RGB", (9, 9), "red").save(folder / "png_inside.jpg", "PNG")
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (9, 5), "red").save(folder / "turned.jpg", exif=exif)
    return tmp_path


@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_image_is_loaded(zoo_of_formats, channels):
    data = open_folder(zoo_of_formats, channels=channels, batch_size=1)
    assert data.num_train + data.num_val + data.num_test == 22
    assert data.in_channels == channels
    for split in ("train", "val", "test"):
        for batch in data.create_loader(split):
            images = data.prepare_batch(batch, training=split == "train").images
            assert images.shape == (len(batch.labels), channels, 8, 8)
            assert images.isfinite().all()
    assert "Of 1 files with several frames only the first is used." in data.describe()


BAD = {"half.jpg": "truncated", "empty.jpg": "0 bytes", "page.jpg": "no known format"}


@pytest.fixture
def damaged(zoo_of_formats):
    Image.effect_noise((64, 64), 50).save(zoo_of_formats / "plain" / "half.jpg")
    content = (zoo_of_formats / "plain" / "half.jpg").read_bytes()
    (zoo_of_formats / "plain" / "half.jpg").write_bytes(content[: len(content) // 2])
    (zoo_of_formats / "plain" / "empty.jpg").write_bytes(b"")
    (zoo_of_formats / "plain" / "page.jpg").write_text("<html>not found</html>")
    return zoo_of_formats


def test_damaged_files_stop_the_run_before_it_starts_and_are_all_named(damaged):
    with pytest.raises(ValueError, match="files that cannot be read: 3 ") as caught:
        open_folder(damaged).setup()
    for name, reason in BAD.items():
        assert f"plain/{name}: " in str(caught.value)
        assert reason in str(caught.value)


def test_skipped_files_are_named_counted_and_reported_at_the_end(damaged, caplog):
    data = open_folder(damaged, on_corrupt="skip")
    with caplog.at_level(logging.WARNING):
        data.check()
    assert "leaving out 3 files that cannot be read" in caplog.text
    names = [name for split in ("train", "val", "test") for name in data.sample_names(split)]
    assert len(names) == 22
    assert not any(name.endswith(tuple(BAD)) for name in names)
    assert "3 that cannot be read." in data.describe()
    assert all(name in data.describe() for name in BAD)
    assert sum(len(batch.labels) for batch in data.train_dataloader()) == data.num_train // 4 * 4
    caplog.clear()
    data.teardown("fit")
    assert "3 files that cannot be read were left out of this run" in caplog.text


def test_processes_of_a_distributed_run_share_the_check_and_agree(damaged, monkeypatch):
    alone = open_folder(damaged, on_corrupt="skip")
    alone.setup()
    checked = []

    def check(paths, *_):
        facts = image_files.check_images(paths, 3, 1)
        checked.append((paths, facts))
        return facts

    def gather(parts, own):
        if len(checked) == 1:
            raise TimeoutError("the other process has not answered yet")
        parts[:] = [checked[0][1], own]

    monkeypatch.setattr(image_folder, "check_images", check)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    for rank in range(2):
        monkeypatch.setattr(image_folder, "current_shard", lambda rank=rank: (rank, 2))
        data = open_folder(damaged, on_corrupt="skip")
        with contextlib.suppress(TimeoutError):
            data.setup()
    assert not set(checked[0][0]) & set(checked[1][0])
    assert len(checked[0][0]) + len(checked[1][0]) == 25
    for split in ("train", "val", "test"):
        assert data.sample_names(split) == alone.sample_names(split)


def test_skipping_all_images_of_a_class_is_an_error(tmp_path, make_images):
    make_images(tmp_path, "ab", count=5)
    for path in (tmp_path / "b").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"too few images of 'b' \(0\)"):
        open_folder(tmp_path, on_corrupt="skip").setup()


def test_without_the_check_a_damaged_file_stops_the_run_by_name(damaged):
    data = open_folder(damaged, check_files=False, batch_size=1)
    assert "were not decoded beforehand" in data.describe()
    loaders = [data.create_loader(split) for split in ("train", "val", "test")]
    with pytest.raises(ValueError, match=r"plain/(half|empty|page)\.jpg: "):
        list(itertools.chain(*loaders))


def test_names_in_decomposed_unicode_are_the_same_class(tmp_path, make_images):
    for split, form in (("train", "NFC"), ("val", "NFD")):
        make_images(tmp_path / split, [unicodedata.normalize(form, "Äpfel"), "b"], count=4)
    data = open_folder(tmp_path)
    assert data.class_names == ("b", unicodedata.normalize("NFC", "Äpfel"))
    assert data.labels("test").bincount().tolist() == [4, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_corrupt": "ignore"}, "'ignore' must be 'raise' or 'skip'"),
        ({"on_corrupt": "skip", "check_files": False}, "'skip' needs check_files"),
        ({"num_workers": -1}, r"num_workers \(-1\)"),
        ({"worker_timeout_s": 0}, r"worker_timeout_s \(0\)"),
        ({"smallest_crop": 0}, r"smallest_crop \(0\)"),
        ({"channels": 4}, r"channels \(4\) must be 1"),
        ({"background": "clear"}, "background 'clear'"),
        ({"resize": 12, "keep_aspect": False}, r"resize \(12\) has no effect without keep_aspect"),
        ({"resize": 7}, r"resize \(7\) must be at least the crop"),
        ({"validation_fraction": 1.0}, r"validation_fraction \(1.0\) must be between 0 and 1"),
        ({"batch_size": 0}, r"batch_size \(0\)"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path, make_images, options, message):
    make_images(tmp_path, "ab", count=3)
    with pytest.raises(ValueError, match=message):
        open_folder(tmp_path, **options)


@pytest.mark.parametrize(("option", "folder"), [("validation_fraction", "val"), ("test_fraction", "test")])
def test_share_of_a_split_that_has_its_own_folder_is_refused(tmp_path, make_images, option, folder):
    for split in ("train", "val", "test"):
        make_images(tmp_path / split, "ab", count=3)
    with pytest.raises(ValueError, match=rf"{option} \(0.5\) has no effect: .*{folder} is that split"):
        open_folder(tmp_path, **{option: 0.5})


def test_missing_root_is_named(tmp_path):
    with pytest.raises(ValueError, match="gone is no folder"):
        open_folder(tmp_path / "gone")


def test_squeezed_images_keep_their_borders_and_cut_ones_do_not(tmp_path):
    image = Image.new("RGB", (64, 16), "blue")
    image.paste("red", (0, 0, 24, 16))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(4):
            image.save(tmp_path / name / f"{number}.png")
    corners = {}
    for keep_aspect in (True, False):
        data = open_folder(tmp_path, keep_aspect=keep_aspect)
        corners[keep_aspect] = next(iter(data.test_dataloader())).images[0, :, 4, 0].tolist()
    assert corners == {True: [0, 0, 255], False: [255, 0, 0]}


@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="ZOO_DATA is not set: needs the photographs of imagenette160")
def test_real_photographs_are_found_and_prepared():
    root = Path(os.environ["ZOO_DATA"]) / "imagenette160"
    data = open_folder(root, image_size=64, check_files=False, batch_size=16)
    data.check(num_classes=10)
    assert (data.num_train, data.num_val, data.num_test) == (2250, 250, 850)
    assert data.labels("val").bincount().tolist() == [25] * 10
    batch = data.prepare_batch(next(iter(data.train_dataloader())), training=True)
    assert batch.images.shape == (16, 3, 64, 64)
    assert batch.images.dtype == torch.float32
    assert 0.3 < batch.images.std() < 2


def test_digest_sees_each_change_of_an_image_and_not_the_place(tmp_path, make_images):
    make_images(tmp_path / "first", "ab")
    digest = open_folder(tmp_path / "first").digest()
    root = (tmp_path / "first").rename(tmp_path / "second")
    assert open_folder(root, shuffle_seed=3).digest() == digest
    image = root / "a" / "0.png"
    Image.open(image).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(image)
    changed = open_folder(root).digest()
    assert changed != digest
    image.rename(root / "b" / "9.png")
    assert open_folder(root).digest() not in (digest, changed)
