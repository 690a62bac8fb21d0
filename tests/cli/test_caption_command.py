"""zoo caption: what is printed and written, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import zoo
from zoo.cli import main
from zoo.data.vocabulary import Vocabulary
from zoo.preprocessing import Preprocessing
from zoo.pretrained import save_weights

WORDS = Vocabulary.of_captions(["a red ring above two dogs"]).words


@pytest.fixture
def weights(tmp_path):
    """A captioner with sharp opinions, saved as if trained on scenes."""
    torch.manual_seed(3)
    captioner = zoo.create_captioner(
        "captioner_transformer", num_classes=len(WORDS), max_words=4, embed_dim=32, num_heads=1, depth=1,
        encoder_args={"width_multiplier": 0.25},
    )  # fmt: skip
    with torch.no_grad():
        captioner.decoder.head.weight.mul_(5)
    figures = {"epoch": 1, "exact_match": 0.5, "held_out_exact_match": 0.25}
    save_weights(
        captioner,
        tmp_path / "writer.scenes.yaml",
        preprocessing=Preprocessing(24, 24, mean=(0.5,) * 3, std=(0.25,) * 3),
        data={"name": "caption_scenes", "split": "test", "class_names": list(WORDS), "options": {}},
        metrics={"selected_epoch": figures, "last_epoch": figures},
        stored="last_epoch",
    )
    return tmp_path


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a picture.png"
    pixels = torch.randint(0, 256, (40, 60, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    Image.fromarray(pixels.numpy()).save(path)
    return path


def run(weights, *words):
    return main(["caption", "--weights", "writer.scenes", "--folder", str(weights), *map(str, words)])


def test_a_caption_is_printed_and_a_sheet_with_a_picture_per_word_written(weights, picture, tmp_path, capsys):
    assert run(weights, picture, "--output", tmp_path / "sheets") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{picture}: ")
    sheet = tmp_path / "sheets/a_picture.png"
    assert f"written: {sheet}" in printed
    with Image.open(sheet) as image:
        assert image.width > 1000
    model, card = zoo.load_pretrained("writer.scenes", folder=weights)
    with Image.open(picture) as image:
        written = model.write(card.preprocess(image).unsqueeze(0), beam_width=4)
    caption = " ".join(Vocabulary(WORDS).decode(written.words[0].tolist()))
    assert printed.startswith(f"{picture}: {caption}  (log p {float(written.log_probability[0]):.2f})")


def test_json_holds_words_and_no_sheet_is_written_when_not_wanted(weights, picture, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(weights, picture, "--json", "--no-sheet", "--beam", 1) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["image"] == str(picture)
    assert answer["caption"] == " ".join(answer["words"])
    assert answer["log_probability"] < 0
    assert not (tmp_path / "captions").exists()


def test_images_of_one_name_get_sheets_of_their_own_and_unreadable_ones_are_named(weights, picture, tmp_path, capsys):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    assert run(weights, bad, picture, picture, "--output", tmp_path / "sheets") == 1
    captured = capsys.readouterr()
    assert "bad.png: no image" in captured.err
    assert "1 of 3 images could not be read" in captured.err
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == ["a_picture.png", "a_picture_2.png"]


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_commands_about_classes_refuse_captioners_and_say_what_to_use(weights, picture, command, capsys):
    assert main([command, "--weights", "writer.scenes", "--folder", str(weights), str(picture)]) == 2
    assert "writes captions: use zoo caption" in capsys.readouterr().err


def test_caption_refuses_classifiers_and_a_beam_of_none(weights, picture, save_tiny_weights, tmp_path: Path, capsys):
    save_tiny_weights(tmp_path / "tiny.digits.yaml")
    assert main(["caption", "--weights", str(tmp_path / "tiny.digits.yaml"), str(picture)]) == 2
    assert "tells classes: use zoo predict" in capsys.readouterr().err
    assert run(weights, picture, "--beam", 0) == 2
    assert "--beam (0) must be at least 1" in capsys.readouterr().err


def test_captioners_are_listed_described_and_verified(weights, capsys):
    assert main(["list", "captioners", "caption_data", "--json"]) == 0
    lists = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in lists["captioners"]] == zoo.list_captioners()
    assert lists["captioners"][1]["options"]["encoder"] == "resnet20"
    assert {"caption_scenes", "coco_captions"} == {entry["name"] for entry in lists["caption_data"]}
    assert main(["list", "weights", "--folder", str(weights)]) == 0
    assert "50.00 % exact match" in " ".join(capsys.readouterr().out.split())
    assert main(["describe", "writer.scenes", "--folder", str(weights)]) == 0
    assert "50.00 % exact match" in capsys.readouterr().out
    assert main(["verify", "writer.scenes", "--folder", str(weights)]) == 0
