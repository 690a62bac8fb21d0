import json
from pathlib import Path

import pytest

from zoo.cli import main
from zoo.registry import ATTENTION, DATASETS, MODELS, TOKEN_ATTENTION


def list_json(capsys, *words: str, status: int = 0) -> dict:
    assert main(["list", *words, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_every_registered_name_is_listed_with_its_options_and_models_with_their_size(capsys) -> None:
    lists = list_json(capsys, "attention", "token_attention", "models", "data")
    by_name = {entry["name"]: entry for entry in lists["models"]}
    assert by_name["resnet20"]["parameters"] == 269_722
    assert by_name["resnet18"]["parameters"] == 11_689_512
    assert by_name["resnet18"]["input_size"] == [3, 224, 224]
    tiny = by_name["vit_tiny_patch4_32"]
    assert (tiny["input_size"], tiny["parameters"], tiny["macs"]) == ([3, 32, 32], 5_362_762, 365_107_584)
    registries = {"attention": ATTENTION, "token_attention": TOKEN_ATTENTION, "models": MODELS, "data": DATASETS}
    for kind, registry in registries.items():
        assert [entry["name"] for entry in lists[kind]] == list(registry)
        assert all("options" in entry for entry in lists[kind])
    assert all(entry["summary"] for kind in ("attention", "data") for entry in lists[kind])


def test_every_name_is_in_the_table_too(capsys) -> None:
    assert main(["list", "attention", "token_attention", "data"]) == 0
    words = capsys.readouterr().out.split()
    assert {*ATTENTION, *TOKEN_ATTENTION, *DATASETS} <= set(words)


def test_options_are_those_a_person_may_set(capsys) -> None:
    lists = list_json(capsys, "attention", "data")
    assert lists["attention"][list(ATTENTION).index("se")]["options"]["reduction_ratio"] == 16
    digits = lists["data"][list(DATASETS).index("cluttered_digits")]["options"]
    assert "position_jitter" in digits
    assert "shuffle_seed" not in digits


def test_weights_are_listed_with_what_they_claim(capsys, tmp_path: Path, save_tiny_weights) -> None:
    card = save_tiny_weights(tmp_path / "resnet20.digits.yaml")
    (entry,) = list_json(capsys, "weights", "--folder", str(tmp_path))["weights"]
    assert entry == {
        "name": "resnet20.digits",
        "model": "resnet20",
        "attention": None,
        "data": "cluttered_digits",
        "split": "test",
        "top1": 0.5,
        "epoch": "last_epoch",
        "parameters": card.tensors["num_parameters"],
        "licence": "Apache-2.0",
        "file": "verified",
    }
    assert main(["list", "weights", "--folder", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "resnet20.digits" in table
    assert "50.00 %" in table


def test_weights_that_are_not_what_their_card_says_are_marked_and_make_the_status_1(
    capsys, tmp_path: Path, save_tiny_weights
) -> None:
    for name in ("changed", "good", "lost", "short"):
        save_tiny_weights(tmp_path / f"{name}.yaml")
    content = (tmp_path / "changed.safetensors").read_bytes()
    (tmp_path / "changed.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (tmp_path / "lost.safetensors").unlink()
    (tmp_path / "short.yaml").write_text("format: 1\n")
    entries = list_json(capsys, "weights", "--folder", str(tmp_path), status=1)["weights"]
    states = {entry["name"]: entry["file"] for entry in entries}
    assert states["changed"] == "WRONG SHA-256"
    assert states["good"] == "verified"
    assert states["lost"] == "file missing"
    assert states["short"].startswith("unusable card: ")
    assert main(["list", "weights", "--folder", str(tmp_path)]) == 1
    assert "WRONG SHA-256" in capsys.readouterr().out


def test_an_empty_folder_lists_none(capsys, tmp_path: Path) -> None:
    assert main(["list", "weights", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "weights: none\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model"], "unknown kind 'model'. Did you mean 'models'?"),
        (["attention", "--folder", "x"], "--folder has no effect without the kind weights"),
        (["weights", "--folder", "absent"], "there is no folder absent"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, words: list[str], message: str) -> None:
    assert main(["list", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_flag_is_the_kind_weights(capsys, tmp_path: Path, save_tiny_weights) -> None:
    save_tiny_weights(tmp_path / "resnet20.digits.yaml")
    words = ["--folder", str(tmp_path)]
    assert list_json(capsys, "--weights", *words) == list_json(capsys, "weights", *words)
    assert set(list_json(capsys, "data", "--weights", *words)) == {"data", "weights"}
