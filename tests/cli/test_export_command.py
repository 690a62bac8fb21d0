import json
from pathlib import Path

import pytest

from zoo.cli import main


@pytest.fixture
def folder(tmp_path: Path, save_tiny_weights) -> Path:
    save_tiny_weights(tmp_path / "weights" / "tiny.digits.yaml")
    return tmp_path / "weights"


def test_the_file_and_its_description_are_written_and_what_was_checked_is_said(
    capsys, tmp_path: Path, folder: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "tiny.digits", "--format", "safetensors", "--folder", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "batch of 5: logits differ from the model's by at most 0" in printed
    assert (tmp_path / "tiny.digits.safetensors").is_file()
    description = json.loads((tmp_path / "tiny.digits.safetensors.json").read_text())
    assert description["weights"] == "tiny.digits"
    words = ["export", str(folder / "tiny.digits.yaml"), "--format", "safetensors", "--output", "x/a.st", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "x" / "a.st.json").read_text())


def test_a_mistake_is_one_line_and_status_2(capsys, folder: Path) -> None:
    assert main(["export", "tiny.digit", "--format", "onnx", "--folder", str(folder)]) == 2
    assert "Did you mean 'tiny.digits'?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["export", "tiny.digits", "--format", "tflite"])
    assert "invalid choice: 'tflite'" in capsys.readouterr().err
