import json
import socket
from pathlib import Path

import pytest
import torch
from PIL import Image

from zoo.cli import main
from zoo.pretrained import load_pretrained


@pytest.fixture
def weights(tmp_path: Path, save_tiny_weights) -> str:
    names = [f"digit {number}" for number in range(10)]
    data = {"name": "cluttered_digits", "split": "test", "class_names": names}
    save_tiny_weights(tmp_path / "w" / "tiny.digits.yaml", data=data)
    return str(tmp_path / "w" / "tiny.digits.yaml")


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    """A colour image, a greyscale one, a transparent one, of different sizes."""
    generator = torch.Generator().manual_seed(0)
    paths = []
    for name, mode, height, width in (("a.png", "RGB", 32, 32), ("b ü.JPG", "L", 50, 20), ("c.png", "RGBA", 8, 70)):
        channels = len(mode)
        pixels = torch.randint(256, (height, width, channels), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.squeeze(2).numpy(), mode=None).save(tmp_path / name)
        paths.append(str(tmp_path / name))
    return paths


def test_classes_and_probabilities_are_those_of_the_model(capsys, weights: str, images: list[str]) -> None:
    assert main(["predict", "--weights", weights, "--json", "--top", "10", *images]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["image"] for answer in answers] == images
    model, card = load_pretrained(weights)
    for path, answer in zip(images, answers, strict=True):
        probabilities = model(card.preprocess(Image.open(path)).unsqueeze(0)).softmax(dim=1)[0].detach()
        order = probabilities.argsort(descending=True).tolist()
        assert [entry["name"] for entry in answer["classes"]] == [f"digit {position}" for position in order]
        for entry, position in zip(answer["classes"], order, strict=True):
            assert entry["probability"] == pytest.approx(float(probabilities[position]), rel=1e-4)


def test_text_shows_the_top_classes_in_percent(capsys, weights: str, images: list[str]) -> None:
    assert main(["predict", "--weights", weights, "--top", "2", *images[:1]]) == 0
    path, first, second = capsys.readouterr().out.splitlines()
    assert path == images[0]
    assert " %  digit " in first
    assert float(first.split("%")[0]) >= float(second.split("%")[0])


def test_more_classes_than_there_are_is_all_of_them(capsys, weights: str, images: list[str]) -> None:
    assert main(["predict", "--weights", weights, "--top", "50", "--json", images[0]]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert len(answer["classes"]) == 10
    assert sum(entry["probability"] for entry in answer["classes"]) == pytest.approx(1)


def test_unreadable_files_are_named_the_others_answered_and_the_status_is_1(
    capsys, weights: str, images: list[str], tmp_path: Path
) -> None:
    empty, text, cut = tmp_path / "empty.png", tmp_path / "text.jpg", tmp_path / "cut.png"
    empty.touch()
    text.write_text("<html>")
    cut.write_bytes(Path(images[0]).read_bytes()[:300])
    bad = [str(empty), str(text), str(cut), str(tmp_path / "absent.png"), str(tmp_path)]
    assert main(["predict", "--weights", weights, bad[0], images[0], *bad[1:], images[1]]) == 1
    output, error = capsys.readouterr()
    assert images[0] in output
    assert images[1] in output
    for path in bad:
        assert f"zoo: error: {path}" in error
        assert path not in output.splitlines()
    assert error.splitlines()[-1] == "zoo: 5 of 7 images could not be read"
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "absent"], "unknown weights 'absent'"),
        (["--weights", "model.pth"], "is a pickle"),
        (["--weights", "absent.yaml"], "there is no file absent.yaml"),
        (["--weights", "{weights}", "--top", "0"], "--top (0) must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, weights: str, words: list[str], message: str) -> None:
    assert main(["predict", *[word.format(weights=weights) for word in words], "a.png"]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith("zoo: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_changed_weights_are_refused_before_any_image(capsys, weights: str, images: list[str]) -> None:
    path = Path(weights).with_suffix(".safetensors")
    path.write_bytes(path.read_bytes() + b"x")
    assert main(["predict", "--weights", weights, *images]) == 2
    assert "is not the file its card describes" in capsys.readouterr().err


def test_a_model_that_overflows_gives_an_error_and_no_classes(
    capsys, tmp_path: Path, tiny_model, save_tiny_weights, images: list[str]
) -> None:
    # The fixed input of the fingerprint stays finite, this image does not.
    preprocessing = {"height": 32, "width": 32, "mean": [0.5] * 3, "std": [1e-38] * 3}
    save_tiny_weights(tmp_path / "a.yaml", preprocessing=preprocessing)
    assert main(["predict", "--weights", str(tmp_path / "a.yaml"), images[0]]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert "are NaN or infinite: the model is broken" in error


def test_no_socket_is_opened(capsys, weights: str, images: list[str], monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert main(["predict", "--weights", weights, images[0]]) == 0


@pytest.mark.parametrize("nothing", ["", " "])
def test_weights_that_are_no_name_at_all_are_refused_with_what_could_be_given(capsys, images, nothing: str) -> None:
    assert main(["predict", "--weights", nothing, images[0]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"zoo: error: {nothing!r} names no weights: give a name (zoo list weights), a file")
    assert error.count("\n") == 1
