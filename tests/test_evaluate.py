"""evaluate.py from end to end, on built-in data and on a folder."""

import importlib.util
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

import zoo
from zoo.evaluation.accuracy import compute_metrics
from zoo.evaluation.predictions import predict_dataset
from zoo.preprocessing import PRESETS
from zoo.pretrained import load_pretrained

SCRIPT = Path(__file__).resolve().parent.parent / "evaluate.py"
DIGIT_OPTIONS = {"num_images": 300, "clutter": 0}
QUICK = ["--latency_batch_sizes", "[1,2]"]
HERE = ["--data.num_workers", "0"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("evaluate_script", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def digit_weights(tmp_path: Path, tiny_model, save_tiny_weights) -> Path:
    """Untrained weights, and a card with their true test accuracy."""
    data = zoo.create_data("cluttered_digits", **DIGIT_OPTIONS)
    data.setup()
    prepare = partial(data.prepare_batch, training=False)
    measured = compute_metrics(predict_dataset(tiny_model, data.test_dataloader(), prepare), data.class_names)
    section = {"name": "cluttered_digits", "split": "test", "class_names": data.class_names, "options": DIGIT_OPTIONS}
    metrics = {"selected_epoch": {"top1": 0.9}, "last_epoch": {"top1": measured["top1"]}}
    save_tiny_weights(tmp_path / "run" / "weights.yaml", data=section, metrics=metrics)
    return tmp_path / "run"


def fail(script: ModuleType, capsys, *words: str) -> str:
    """Run a command line that is refused; return what it says on standard error."""
    try:
        status = script.main(list(words))
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2, error
    assert error.startswith("evaluate.py: error: ")
    assert "Traceback" not in error
    return error


def test_a_run_is_evaluated_on_the_data_of_its_card_and_reported_in_its_folder(
    script, capsys, digit_weights: Path
) -> None:
    assert script.main(["--weights", str(digit_weights), "--num_threads", "1", *QUICK]) == 0
    output = capsys.readouterr().out
    report = json.loads((digit_weights / "evaluation.json").read_text())
    assert f"Written: {digit_weights / 'evaluation.json'}" in output
    metrics, cost = report["metrics"], report["cost"]
    assert metrics["num_images"] == 50
    assert sum(metrics["num_per_class"].values()) == 50
    assert {"top1", "top5", "macro_accuracy", "per_class", "confusion", "nll", "ece"} <= set(metrics)
    assert report["claim"]["difference"] == 0
    assert "exactly what the card says of the last epoch" in output
    _, card = load_pretrained(digit_weights)
    assert cost["parameters"] == card.tensors["num_parameters"]
    assert cost["macs"] > 1e6
    assert [timing["batch_size"] for timing in cost["latency"]] == [1, 2]
    assert [timing["num_threads"] for timing in cost["latency"]] == [1, 1]
    assert cost["peak_memory_mib"]["2"] > cost["peak_memory_mib"]["1"] > 0
    for shown in (f"{100 * metrics['top1']:.2f} %", f"{cost['parameters']:,}", f"{cost['macs']:,}", "threads: 1"):
        assert shown in output


def test_weights_in_a_folder_write_json_only_where_they_are_told_to(
    script, capsys, tmp_path: Path, digit_weights: Path
) -> None:
    for suffix in ("yaml", "safetensors"):
        content = (digit_weights / f"weights.{suffix}").read_bytes()
        (tmp_path / f"tiny.digits.{suffix}").write_bytes(
            content.replace(b"weights.safetensors", b"tiny.digits.safetensors")
        )
    words = ["--weights", "tiny.digits", "--folder", str(tmp_path), *QUICK]
    before = set(tmp_path.rglob("*"))
    assert script.main(words) == 0
    assert set(tmp_path.rglob("*")) == before
    assert "Written" not in capsys.readouterr().out
    assert script.main([*words, "--output", str(tmp_path / "new" / "report.json")]) == 0
    assert json.loads((tmp_path / "new" / "report.json").read_text())["weights"] == "tiny.digits"


def test_a_card_that_claims_too_much_is_contradicted(script, capsys, tmp_path: Path, digit_weights: Path) -> None:
    card = digit_weights / "weights.yaml"
    card.write_text(card.read_text().replace("stored: last_epoch", "stored: selected_epoch"))
    assert script.main(["--weights", str(digit_weights), *QUICK]) == 0
    assert "DOES NOT AGREE with the card's 90.00 % of the selected epoch" in capsys.readouterr().out
    assert json.loads((digit_weights / "evaluation.json").read_text())["claim"]["agrees"] is False


def test_options_of_the_data_can_be_changed_and_then_nothing_is_claimed(script, capsys, digit_weights: Path) -> None:
    words = ["--weights", str(digit_weights), "--data.clutter", "2", "--split", "test", *QUICK]
    assert script.main(words) == 0
    assert "nothing on the card to compare it with: the card is about other options" in capsys.readouterr().out
    report = json.loads((digit_weights / "evaluation.json").read_text())
    assert report["data"]["options"]["clutter"] == 2
    assert report["data"]["options"]["num_images"] == 300, "the others stay those of the card"


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Three classes of plain colours; 1, 2 and 3 test images."""
    colours = {"ash": "red", "beech": "lime", "cedar": "blue"}
    for number, (name, colour) in enumerate(colours.items(), 1):
        for split, count in (("train", 4), ("val", 1), ("test", number)):
            for position in range(count):
                path = tmp_path / "images" / split / name / f"{position}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (20, 24), colour).save(path)
    return tmp_path / "images"


@pytest.fixture
def tree_weights(tmp_path: Path, save_tiny_weights) -> Callable[[list[str]], str]:
    """Return a function that saves weights for classes in an order of our choice."""

    def save(class_names: list[str]) -> str:
        torch.manual_seed(0)
        model = zoo.create_model("resnet20", num_classes=len(class_names), width_multiplier=0.25)
        data = {"name": "image_folder", "split": "test", "class_names": class_names, "options": {}}
        path = tmp_path / "trees.yaml"
        save_tiny_weights(path, model, data=data, preprocessing=PRESETS["imagenet_224"].replace_size(32, 32, 40))
        return str(path)

    return save


def test_labels_of_a_folder_follow_the_classes_of_the_card_by_name(
    script, capsys, image_folder: Path, tree_weights, tmp_path: Path
) -> None:
    path = tree_weights(["cedar", "ash", "beech"])
    output = str(tmp_path / "report.json")
    assert script.main(["--weights", path, "--data.root", str(image_folder), "--output", output, *QUICK, *HERE]) == 0
    printed = capsys.readouterr().out
    metrics = json.loads(Path(output).read_text())["metrics"]
    assert metrics["num_per_class"] == {"cedar": 3, "ash": 1, "beech": 2}
    model, card = load_pretrained(path)
    expected = [[0, 0, 0] for _ in range(3)]
    for label, (colour, count) in enumerate((("blue", 3), ("red", 1), ("lime", 2))):
        logits = model(card.preprocess(Image.new("RGB", (20, 24), colour)).unsqueeze(0))
        expected[label][int(logits.argmax())] = count
    assert metrics["confusion"] == expected
    for mapping in ("ash -> 1", "beech -> 2", "cedar -> 0"):
        assert mapping in printed


def test_images_are_prepared_as_the_card_says_not_as_the_data_would(
    script, image_folder: Path, tree_weights, tmp_path: Path
) -> None:
    words = ["--weights", tree_weights(["ash", "beech", "cedar"]), "--data.root", str(image_folder), *QUICK, *HERE]
    output = tmp_path / "report.json"
    assert script.main([*words, "--data.image_size", "64", "--output", str(output)]) == 0
    description = json.loads(output.read_text())["data"]["description"]
    assert "short side scaled to 40, centre 32 x 32 cut out" in description


def test_a_class_the_weights_do_not_know_is_named(script, capsys, image_folder: Path, tree_weights) -> None:
    words = ["--weights", tree_weights(["ash", "beech", "birch"]), "--data.root", str(image_folder)]
    assert "cedar" in fail(script, capsys, *words)


def test_images_of_another_size_than_the_weights_need_are_refused(script, capsys, digit_weights: Path) -> None:
    error = fail(script, capsys, "--weights", str(digit_weights), "--data.image_size", "40")
    assert "gives images of 3 channels, 40 x 40 pixels" in error
    assert "were trained on 3 channels, 32 x 32 pixels" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: weights"),
        (["--weights", "resnet20.nowhere"], "unknown weights 'resnet20.nowhere'"),
        (["--weights", "model.ckpt"], "is a pickle"),
        (["--weight", "x"], "Did you mean 'weights'?"),
        (["--weights", "{run}", "--data.cluter", "1"], "Did you mean 'data.clutter'?"),
        (["--weights", "{run}", "--data.clutter", "many"], "data.clutter"),
        (["--weights", "{run}", "--data.name", "cifar1O"], "unknown data set 'cifar1O'. Did you mean 'cifar10'?"),
        (["--weights", "{run}", "--data.name", "image_folder", "--data.root", "absent"], "absent"),
        (["--weights", "{run}", "--precision", "bf61"], "precision"),
        (["--weights", "{run}", "--split", "train"], "split"),
        (["--weights", "{run}", "--num_threads", "0"], "num_threads (0) must be at least 1"),
        (["--weights", "{run}", "--latency_batch_sizes", "[0]"], "batch size (0) must be at least 1"),
    ],
)
def test_a_mistake_ends_with_status_2_and_is_named(script, capsys, digit_weights: Path, words, message: str) -> None:
    assert message in fail(script, capsys, *[word.format(run=digit_weights) for word in words])


def test_weights_whose_file_changed_are_not_evaluated(script, capsys, digit_weights: Path) -> None:
    path = digit_weights / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "is not the file its card describes" in fail(script, capsys, "--weights", str(digit_weights))


def test_no_socket_is_opened(script, digit_weights: Path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert script.main(["--weights", str(digit_weights), *QUICK]) == 0
