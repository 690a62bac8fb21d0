import os
import pickle
from pathlib import Path

import pytest
import torch

import zoo
from zoo.cli import main
from zoo.pretrained import load_pretrained

NORMALISATION = ["--mean", "0.485", "0.456", "0.406", "--std", "0.229", "0.224", "0.225"]
DIGITS = ["--data", "cluttered_digits", "--data-option", "num_images=300", "--data-option", "clutter=0"]


@pytest.fixture
def checkpoint(tmp_path: Path, tiny_model) -> str:
    """A checkpoint as others write it: wrapped, another name for the head, two sets of weights."""
    state = {f"module.{name.replace('fc.', 'linear.')}": value for name, value in tiny_model.state_dict().items()}
    averaged = {name: value + 1 if value.is_floating_point() else value for name, value in state.items()}
    torch.save({"state_dict": state, "state_dict_ema": averaged, "epoch": 3}, tmp_path / "theirs.pth.tar")
    return f"{tmp_path / 'theirs.pth.tar'}#entry=state_dict"


def convert(*words: str) -> int:
    return main(["convert", *words, "--model", "resnet20", "--model-option", "width_multiplier=0.25"])


def test_a_checkpoint_becomes_a_safetensors_file_and_a_card(capsys, tmp_path: Path, checkpoint, tiny_model) -> None:
    output = tmp_path / "new" / "tiny.digits.yaml"
    words = [*DIGITS, *NORMALISATION, "--licence", "MIT", "--made-by", "somebody", "--output", str(output)]
    assert convert(checkpoint, *words) == 0
    printed = capsys.readouterr().out
    assert "fc.weight <- linear.weight" in printed
    assert "prefixes taken off: module." in printed
    assert f"Written: {output}" in printed
    model, card = load_pretrained(output, verify=True)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(images), tiny_model.eval()(images))
    assert (card.licence, card.data["name"]) == ("MIT", "cluttered_digits")
    assert card.source.startswith("somebody; converted from theirs.pth.tar#entry=state_dict, sha256 ")
    assert card.command.startswith("zoo ")
    assert card.preprocessing["mean"] == [0.485, 0.456, 0.406]
    assert (card.preprocessing["height"], card.preprocessing["resize"]) == (32, None)
    assert card.claim == {}
    assert card.cost["parameters"] == card.tensors["num_parameters"]
    assert set(card.hardware.values()) == {None}


def test_the_accuracy_is_measured_when_asked_for_and_stands_up_to_verification(capsys, tmp_path, checkpoint) -> None:
    output = tmp_path / "tiny.digits.yaml"
    words = [*DIGITS, "--preprocessing", "cluttered_digits", "--licence", "MIT", "--output", str(output), "--measure"]
    assert convert(checkpoint, *words) == 0
    _, card = load_pretrained(output)
    assert f"Measured: {100 * card.claim['top1']:.2f} % of 50 images" in capsys.readouterr().out
    assert main(["verify", str(output), "--accuracy"]) == 0
    assert "exactly what the card says" in " ".join(capsys.readouterr().out.split())


def test_an_existing_card_is_not_written_over(capsys, tmp_path: Path, checkpoint) -> None:
    output = tmp_path / "a.yaml"
    output.write_text("mine")
    words = [*DIGITS, "--preprocessing", "cifar10", "--licence", "MIT", "--output", str(output)]
    assert convert(checkpoint, *words) == 2
    assert "exists; weights with a card are not written over" in capsys.readouterr().err
    assert output.read_text() == "mine"


def test_class_names_come_from_a_file_or_the_data(capsys, tmp_path: Path, checkpoint, monkeypatch) -> None:
    names = tmp_path / "names.txt"
    names.write_text("\n".join("abcdefghij"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ZOO_DATA", raising=False)
    words = ["--data", "cifar10", "--preprocessing", "cifar10", "--licence", "MIT"]
    assert convert(checkpoint, *words) == 2
    assert "the class names are not known" in capsys.readouterr().err
    assert convert(checkpoint, *words, "--class-names", str(names)) == 0
    _, card = load_pretrained("resnet20.cifar10.yaml")
    assert card.class_names == tuple("abcdefghij")


def test_what_is_missing_for_a_card_is_asked_for(capsys, tmp_path: Path, checkpoint) -> None:
    everything = [*DIGITS, "--output", str(tmp_path / "a.yaml")]
    for words, message in (
        (["--preprocessing", "cifar10"], "states no licence: give it with --licence"),
        (["--licence", "MIT"], "does not say how its images were prepared: give --preprocessing"),
        (["--licence", "MIT", "--mean", "0", "0", "0"], "--mean and --std go together"),
        (["--licence", "MIT", "--preprocessing", "cifar"], "unknown preset 'cifar'. Did you mean 'cifar10'?"),
        (["--licence", "MIT", "--preprocessing", "cifar10", "--model-option", "num_classes=7"], "does not hold all of"),
        (["--licence", "MIT", "--preprocessing", "cifar10", "--attention", "se"], "does not hold all of the model"),
    ):
        assert convert(checkpoint, *everything, *words) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "a.yaml").exists()
    assert not (tmp_path / "a.safetensors").exists()


def test_two_sets_of_weights_must_be_chosen_from(capsys, tmp_path: Path, checkpoint) -> None:
    words = [*DIGITS, "--preprocessing", "cifar10", "--licence", "MIT", "--output", str(tmp_path / "a.yaml")]
    assert convert(checkpoint.partition("#")[0], *words) == 2
    assert "several sets of weights: state_dict, state_dict_ema" in capsys.readouterr().err


class RunsCode:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (os.system, (f"touch '{self.marker}'",))


def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(capsys, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "evil.pth"
    torch.save({"state_dict": {"a.b": torch.zeros(1)}, "x": RunsCode(marker)}, path)
    words = [*DIGITS, "--preprocessing", "cifar10", "--licence", "MIT", "--output", str(tmp_path / "a.yaml")]
    assert convert(str(path), *words) == 2
    assert "opening it would run posix.system, so it is refused" in capsys.readouterr().err
    assert not marker.exists()
    pickle.loads(pickle.dumps(RunsCode(marker)))
    assert marker.exists(), "the pickle is as malicious as the test says"


PUBLISHED = {"resnet20-12fca82f.th": ("resnet20", 0.9173), "resnet32-d509ac18.th": ("resnet32", 0.9263)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", PUBLISHED)
def test_weights_trained_elsewhere_reach_their_published_accuracy_on_all_test_images(tmp_path, file: str) -> None:
    folder = os.environ.get("ZOO_WEIGHTS_EXTERNAL")
    if not folder or not os.environ.get("ZOO_DATA"):
        pytest.skip(f"set ZOO_WEIGHTS_EXTERNAL (folder of {file}) and ZOO_DATA (folder of CIFAR-10)")
    name, accuracy = PUBLISHED[file]
    output = tmp_path / f"{name}.cifar10.yaml"
    words = ["convert", str(Path(folder) / file), "--model", name, "--data", "cifar10", *NORMALISATION, "--measure"]
    assert main([*words, "--licence", "BSD-2-Clause", "--output", str(output)]) == 0
    _, card = zoo.load_pretrained(output, verify=True)
    assert card.claim["num_images"] == 10_000
    assert card.claim["top1"] == pytest.approx(accuracy, abs=1e-9)
