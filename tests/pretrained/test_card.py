import shutil
from pathlib import Path

import pytest

from zoo.pretrained import read_card
from zoo.serialization import format_yaml, read_yaml

DIGEST = "0123456789abcdef" * 4


@pytest.fixture
def card_path(tmp_path: Path, save_tiny_weights) -> Path:
    save_tiny_weights(tmp_path / "tiny.digits.yaml", seed=7, training={"peak_lr": 1e-4}, command="python train.py")
    return tmp_path / "tiny.digits.yaml"


def change(card_path: Path, section: str, **entries) -> None:
    content = read_yaml(card_path)
    content[section] = {**content[section], **entries}
    card_path.write_text(format_yaml(content), encoding="utf-8")


def test_a_card_reads_back_as_it_was_written(tmp_path: Path, save_tiny_weights) -> None:
    names = ["no", "yes", "1", "1e-4", "null", "日本", "Größe", "a: b", " x ", "~"]
    data = {"name": "cluttered_digits", "split": "test", "class_names": names}
    card = save_tiny_weights(tmp_path / "a.yaml", data=data, seed=3, training={"peak_lr": 1e-4, "classes": ["on"]})
    again = read_card(tmp_path / "a.yaml")
    assert again == card
    assert again.class_names == tuple(names)
    assert again.training == {"peak_lr": 0.0001, "classes": ["on"]}


def test_sections_of_a_card(card_path: Path) -> None:
    content = read_yaml(card_path)
    assert list(content) == [
        "format",
        "model",
        "tensors",
        "preprocessing",
        "data",
        "metrics",
        "cost",
        "training",
        "seed",
        "versions",
        "hardware",
        "commit",
        "fingerprint",
        "licence",
        "source",
        "command",
    ]
    assert {"python", "torch", "torchvision", "lightning", "zoo"} <= set(content["versions"])
    assert content["hardware"]["num_cores"] >= 1
    assert content["tensors"]["file"] == "tiny.digits.safetensors"


def test_name_of_a_file_and_of_a_run(card_path: Path, save_tiny_weights) -> None:
    assert read_card(card_path).name == "tiny.digits"
    save_tiny_weights(card_path.parent / "seed0" / "weights.yaml")
    assert read_card(card_path.parent / "seed0" / "weights.yaml").name == "seed0"


def test_claim_is_that_of_the_stored_epoch(card_path: Path) -> None:
    assert read_card(card_path).claim == {"epoch": 5, "top1": 0.5}
    change(card_path, "metrics", stored="selected_epoch")
    assert read_card(card_path).claim == {"epoch": 3, "top1": 0.75}


@pytest.mark.parametrize(
    "sha256", [None, "", "abc", DIGEST[:7], DIGEST[:63], DIGEST + "0", DIGEST.upper(), DIGEST + "\n", 64, "g" * 64]
)
def test_anything_but_a_full_lower_case_sha256_is_refused_before_the_tensors_are_looked_at(card_path, sha256) -> None:
    change(card_path, "tensors", sha256=sha256)
    card_path.with_suffix(".safetensors").unlink()
    with pytest.raises(ValueError, match=r"tensors\.sha256 must be"):
        read_card(card_path)


@pytest.mark.parametrize("file", ["../other.safetensors", "/a/b.safetensors", "a\\b.safetensors", "weights.pth", ""])
def test_tensors_lie_beside_the_card_and_are_safetensors(card_path: Path, file: str) -> None:
    change(card_path, "tensors", file=file)
    with pytest.raises(ValueError, match=r"tensors\.file must name a \.safetensors file beside the card"):
        read_card(card_path)


def test_an_unknown_section_is_named_with_the_nearest_one(card_path: Path) -> None:
    card_path.write_text(card_path.read_text().replace("metrics:", "metric:"))
    with pytest.raises(ValueError, match=r"unknown section 'metric'\. Did you mean 'metrics'\?"):
        read_card(card_path)


@pytest.mark.parametrize("section", ["model", "tensors", "fingerprint", "licence", "commit"])
def test_a_missing_section_is_named(card_path: Path, section: str) -> None:
    content = read_yaml(card_path)
    del content[section]
    card_path.write_text(format_yaml(content))
    with pytest.raises(ValueError, match=f"lacks: {section}"):
        read_card(card_path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_is_refused(card_path: Path, version) -> None:
    content = read_yaml(card_path)
    card_path.write_text(format_yaml({**content, "format": version}))
    with pytest.raises(ValueError, match=r"card format .* reads format 1"):
        read_card(card_path)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n- b\n", "model: {name: resnet20}\n"])
def test_yaml_that_is_no_card_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a weight card"):
        read_card(path)


def test_a_repeated_key_is_refused(card_path: Path) -> None:
    card_path.write_text(card_path.read_text() + "seed: 8\n")
    with pytest.raises(ValueError, match="duplicate key"):
        read_card(card_path)


@pytest.mark.parametrize("top1", [91.2, -0.1, float("nan"), "0.9"])
def test_an_accuracy_that_is_no_fraction_is_refused(card_path: Path, top1) -> None:
    change(card_path, "metrics", last_epoch={"top1": top1})
    with pytest.raises(ValueError, match=r"metrics\.last_epoch\.top1 must be a fraction"):
        read_card(card_path)


def test_class_names_must_be_as_many_as_the_classes_and_distinct_text(card_path: Path) -> None:
    names = [str(digit) for digit in range(10)]
    for wrong, message in (
        (names[:9], "has 9 names, but model.num_classes is 10"),
        ([*names[:9], "0"], "must differ"),
        ([*names[:9], 9], "must be text, not 9"),
    ):
        change(card_path, "data", class_names=wrong)
        with pytest.raises(ValueError, match=message):
            read_card(card_path)


def test_preprocess_gives_what_the_model_takes(card_path: Path) -> None:
    from PIL import Image

    card = read_card(card_path)
    assert card.preprocess(Image.new("L", (50, 40))).shape == (3, 32, 32)
    assert card.input_size == (3, 32, 32)


def test_a_card_may_move_with_its_tensors(card_path: Path, tmp_path: Path) -> None:
    from zoo.pretrained import load_pretrained

    folder = shutil.copytree(card_path.parent, tmp_path / "else" / "where")
    load_pretrained(folder / card_path.name, verify=True)
