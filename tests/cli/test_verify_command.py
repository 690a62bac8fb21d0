import json
from pathlib import Path

import pytest

from zoo.cli import main
from zoo.serialization import format_yaml, read_yaml


@pytest.fixture
def folder(tmp_path: Path, save_tiny_weights) -> Path:
    save_tiny_weights(tmp_path / "tiny.digits.yaml", cost={"macs": 2_626_560, "parameters": 17_578})
    return tmp_path


def change(folder: Path, section: str, **entries) -> None:
    path = folder / "tiny.digits.yaml"
    content = read_yaml(path)
    content[section] = {**content[section], **entries}
    path.write_text(format_yaml(content))


def verify_json(capsys, *words: str, status: int) -> dict[str, bool | None]:
    assert main(["verify", *words, "--json"]) == status
    (checks,) = json.loads(capsys.readouterr().out).values()
    return {check["name"]: check["passed"] for check in checks}


def true_cost(capsys, folder: Path) -> dict[str, int]:
    assert main(["verify", "--folder", str(folder), "--json"]) in (0, 1)
    (checks,) = json.loads(capsys.readouterr().out).values()
    found = {check["name"]: check["detail"].partition(", card")[0] for check in checks}
    return {name: int(found[name].replace(",", "")) for name in ("parameters", "macs")}


def test_everything_a_card_says_is_checked(capsys, folder: Path) -> None:
    change(folder, "cost", **true_cost(capsys, folder))
    checks = verify_json(capsys, "--folder", str(folder), status=0)
    assert checks == dict.fromkeys(("card", "tensors", "parameters", "macs", "fingerprint"), True)
    assert main(["verify", "tiny.digits", "--folder", str(folder)]) == 0
    assert "every name and shape" in capsys.readouterr().out


@pytest.mark.parametrize("figure", ["parameters", "macs"])
def test_a_wrong_count_is_found(capsys, folder: Path, figure: str) -> None:
    true = true_cost(capsys, folder)
    change(folder, "cost", **{**true, figure: true[figure] + 1})
    checks = verify_json(capsys, "--folder", str(folder), status=1)
    assert [name for name, passed in checks.items() if not passed] == [figure]


def test_a_count_that_the_card_does_not_state_is_no_fault(capsys, folder: Path, save_tiny_weights) -> None:
    save_tiny_weights(folder / "tiny.digits.yaml")
    assert verify_json(capsys, "--folder", str(folder), status=0)["macs"] is None


def test_other_logits_are_found(capsys, folder: Path) -> None:
    change(folder, "cost", **true_cost(capsys, folder))
    change(folder, "fingerprint", logits=[0.0] * 10)
    checks = verify_json(capsys, "--folder", str(folder), status=1)
    assert checks["fingerprint"] is False
    assert checks["tensors"] is True


def test_one_changed_byte_ends_the_checks(capsys, folder: Path) -> None:
    path = folder / "tiny.digits.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert verify_json(capsys, "--folder", str(folder), status=1) == {"card": True, "tensors": False}
    (folder / "tiny.digits.yaml").write_text("format: 1\n")
    assert verify_json(capsys, "--folder", str(folder), status=1) == {"card": False}


def test_a_claimed_accuracy_is_measured_and_contradicted(capsys, folder: Path) -> None:
    change(folder, "cost", **true_cost(capsys, folder))
    change(folder, "data", options={"num_images": 300, "clutter": 0})
    change(folder, "metrics", last_epoch={"top1": 0.99})
    checks = verify_json(capsys, "--folder", str(folder), "--accuracy", status=1)
    assert checks["accuracy"] is False
    assert main(["verify", "--folder", str(folder), "--accuracy"]) == 1
    assert "DOES NOT AGREE" in " ".join(capsys.readouterr().out.split())


def test_data_that_is_not_there_is_a_failed_check(capsys, folder: Path) -> None:
    change(folder, "cost", **true_cost(capsys, folder))
    change(folder, "data", name="cifar10")
    words = ["--folder", str(folder), "--accuracy", "--data-option", "root=/absent"]
    assert verify_json(capsys, *words, status=1)["accuracy"] is False


def test_weights_that_come_with_the_zoo_are_what_their_cards_say(capsys) -> None:
    assert main(["verify"]) == 0
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data-option", "root=x"], "--data-option has no effect without --accuracy"),
        (["--folder", "absent"], "there is no folder absent"),
    ],
)
def test_what_makes_no_sense_is_refused(capsys, words: list[str], message: str) -> None:
    assert main(["verify", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_folder_is_refused(capsys, tmp_path: Path) -> None:
    assert main(["verify", "--folder", str(tmp_path)]) == 2
    assert "there are no weights to verify" in capsys.readouterr().err
