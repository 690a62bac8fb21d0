"""Strict YAML, atomic files, digests."""

import hashlib

import pytest

from zoo.serialization import format_yaml, parse_yaml, read_yaml, sha256_of, write_atomically


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lr: 1e-4", 1e-4),
        ("lr: 1e4", 1e4),
        ("lr: 1.0e-4", 1e-4),
        ('lr: "1e-4"', "1e-4"),
        ("lr: no", "no"),
        ("lr: on", "on"),
        ("lr: true", True),
        ("lr: 12:30:45", "12:30:45"),
        ("lr: 010", 10),
        ("lr: null", None),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    parsed = parse_yaml(text)["lr"]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a: {b: 1, b: 2}", "\ta: 1", "a: [1", "a: b: c"])
def test_what_is_not_one_clear_document_is_refused_with_its_line(text):
    with pytest.raises(ValueError, match=r"my\.yaml, line \d"):
        parse_yaml(text, source="my.yaml")


@pytest.mark.parametrize(
    "value",
    [
        {"a": None, "b": [1, 2.5, "x"], "c": {"d": True}},
        {"text": ["no", "1e-4", "null", "010", "", " padded ", "ünïcödé", "a: b", "# c"]},
        {"tiny": 1e-300, "huge": 1e22, "third": 1 / 3, "negative": -0.0},
        {"empty": {}, "none": []},
        {"long": "word " * 100},
    ],
)
def test_values_survive_the_way_to_a_file_and_back(tmp_path, value):
    write_atomically(tmp_path / "a.yaml", format_yaml(value))
    assert read_yaml(tmp_path / "a.yaml") == value


def test_a_failed_write_keeps_the_old_content_and_leaves_nothing_behind(tmp_path):
    file = tmp_path / "a.txt"
    write_atomically(file, "old")

    def fail(stream):
        stream.write(b"half")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_atomically(file, fail)
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_gets_the_usual_permissions_and_its_folder_is_made(tmp_path):
    write_atomically(tmp_path / "deep" / "a.bin", b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert (tmp_path / "deep" / "a.bin").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file" / "a.txt", "x")


def test_digest_is_that_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"zoo")
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"zoo").hexdigest()
