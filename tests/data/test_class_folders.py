import os
import unicodedata

import numpy as np
import pytest

from zoo.data.class_folders import ClassFolders, find_images, find_split_folders, match_classes, path_keys


def names_of(found, folder):
    return [os.path.relpath(path, folder) for path in found.paths]


def find_all(folder):
    classes = ClassFolders.find(folder).names
    return classes, find_images(folder, {name: label for label, name in enumerate(classes)})


def test_litter_of_operating_systems_is_neither_class_nor_image(tmp_path, make_images):
    make_images(tmp_path, "abc", count=1)
    make_images(tmp_path, [".ipynb_checkpoints", "__MACOSX", "@eaDir"], count=1)
    (tmp_path / ".hidden_and_empty").mkdir()
    for name in ("a/.DS_Store", "a/Thumbs.db", "a/._0.png", "b/desktop.ini", "README.md"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7")
    (tmp_path / "a" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "a" / ".ipynb_checkpoints" / "0-checkpoint.png").write_bytes(b"")
    classes, found = find_all(tmp_path)
    assert classes == ("a", "b", "c")
    assert names_of(found, tmp_path) == ["a/0.png", "b/0.png", "c/0.png"]
    assert found.labels == [0, 1, 2]
    assert found.foreign == 5


def test_suffixes_count_in_any_case_and_sub_folders_belong_to_their_class(tmp_path):
    for name in ("a/1.JPG", "a/2.webp", "a/deep/er/3.Png", "b/4.TIFF", "b/notes.txt", "b/5.jpg.bak", "b/no_suffix"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    _, found = find_all(tmp_path)
    assert names_of(found, tmp_path) == ["a/1.JPG", "a/2.webp", "a/deep/er/3.Png", "b/4.TIFF"]
    assert found.labels == [0, 0, 0, 1]
    assert found.foreign == 3


def test_pipes_are_left_out_and_linked_folders_followed_once(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.png").write_bytes(b"")
    (tmp_path / "root" / "a").mkdir(parents=True)
    os.mkfifo(tmp_path / "root" / "a" / "pipe.png")
    (tmp_path / "root" / "a" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "a" / "loop").symlink_to(tmp_path / "root" / "a")
    _, found = find_all(tmp_path / "root")
    assert names_of(found, tmp_path / "root") == ["a/link/1.png"]
    assert found.foreign == 1


@pytest.mark.parametrize("pair", [("a", "A"), ("b", "b "), ("Äpfel", unicodedata.normalize("NFD", "Äpfel"))])
def test_classes_that_look_the_same_are_refused(tmp_path, pair):
    for name in pair:
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="differ only in case or blanks") as caught:
        ClassFolders.find(tmp_path)
    assert all(repr(name) in str(caught.value) for name in pair)


def test_folder_without_classes_is_refused(tmp_path):
    (tmp_path / "1.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has no class folders: expected .*/<class>/<image>"):
        ClassFolders.find(tmp_path)


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (["train", "val", "test"], {"train": "train", "val": "val", "test": "test"}),
        (["train", "valid"], {"train": "train", "val": "valid"}),
        (["train", "validation", ".git"], {"train": "train", "val": "validation"}),
        (["train", "test"], {"train": "train", "test": "test"}),
        (["train"], {"train": "train"}),
        (["car", "train", "bus"], {}),
        (["val", "test"], {}),
        (["cat", "dog"], {}),
    ],
)
def test_split_folders_are_recognised(tmp_path, folders, splits):
    for name in folders:
        (tmp_path / name).mkdir()
    assert {split: path.name for split, path in find_split_folders(tmp_path).items()} == splits


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["train", "val", "validation"], "more than one validation folder: val, validation"),
        (["train", "val", "cat", "dog"], "split folders and beside them cat, dog"),
    ],
)
def test_ambiguous_folders_are_refused(tmp_path, folders, message):
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=message):
        find_split_folders(tmp_path)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="gone is no folder"):
        find_split_folders(tmp_path / "gone")


def folders(root, split, names):
    for name in names:
        (root / split / name).mkdir(parents=True)
    return ClassFolders.find(root / split)


def test_evaluation_classes_follow_the_training_classes_by_name(tmp_path):
    training = folders(tmp_path, "train", ["a", "b", "Äpfel"])
    other = folders(tmp_path, "val", ["b", unicodedata.normalize("NFD", "Äpfel")])
    labels = {"a": 0, "b": 1, "Äpfel": 2}
    assert match_classes(other, training, labels, "val") == {"b": 1, unicodedata.normalize("NFD", "Äpfel"): 2}
    # Training folders that are not used are left out of the other splits too.
    assert match_classes(other, training, {"Äpfel": 0}, "val") == {unicodedata.normalize("NFD", "Äpfel"): 0}


@pytest.mark.parametrize(("stranger", "hint"), [("d", ""), ("A", " Did you mean 'a'?"), ("b ", " Did you mean 'b'?")])
def test_evaluation_class_that_training_lacks_is_named(tmp_path, stranger, hint):
    training = folders(tmp_path, "train", ["a", "b", "c"])
    other = folders(tmp_path, "val", ["c", stranger])
    with pytest.raises(ValueError, match="which the training images lack") as caught:
        match_classes(other, training, {"a": 0, "b": 1, "c": 2}, "val")
    assert f"has class {stranger!r}, which the training images lack.{hint} Training classes: a, b, c" in str(
        caught.value
    )


def test_keys_of_paths_depend_on_the_path_below_the_folder_only(tmp_path):
    first = path_keys([f"/here/a/{number}.png" for number in range(100)], "/here")
    second = path_keys([f"/over/there/a/{number}.png" for number in range(100)], "/over/there")
    np.testing.assert_array_equal(first, second)
    assert len(set(first.tolist())) == 100
    # SHA-256 of "a/0.png" begins so: another value would move images between splits.
    assert hex(int(first[0])) == "0x2394a55353872458"
    composed, decomposed = (path_keys([unicodedata.normalize(form, "/here/Ä.png")], "/here") for form in ("NFC", "NFD"))
    assert composed == decomposed
