from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import zoo
from zoo.cli import main


@pytest.fixture
def weights(tmp_path: Path, save_tiny_weights) -> str:
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", attention="cbam", attention_stages=[3], width_multiplier=0.25)
    save_tiny_weights(tmp_path / "w" / "gated.digits.yaml", model)
    return str(tmp_path / "w" / "gated.digits.yaml")


@pytest.fixture
def images(tmp_path: Path) -> list[str]:
    generator = np.random.default_rng(0)
    for name, shape in (("a.png", (32, 32, 3)), ("b.jpg", (50, 20))):
        Image.fromarray(generator.integers(0, 256, shape).astype(np.uint8)).save(tmp_path / name)
    return [str(tmp_path / "a.png"), str(tmp_path / "b.jpg")]


def test_every_image_gets_a_sheet_a_page_and_arrays(capsys, tmp_path, weights, images):
    output = tmp_path / "out"
    words = ["explain", "--weights", weights, "--no-trust", "--methods", "grad_cam", "--output", str(output), *images]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert {path.name for path in output.iterdir()} == {f"{s}.{t}" for s in "ab" for t in ("png", "html", "npz")}
    assert "a.png: gated.digits says " in shown
    assert f"written: {output / 'b.npz'}" in shown


def test_what_can_be_concluded_is_printed(capsys, tmp_path, weights, images):
    words = ["--methods", "grad_cam,integrated_gradients", "--class", "7", "--output", str(tmp_path / "out")]
    assert main(["explain", "--weights", weights, *words, images[0]]) == 0
    output, error = capsys.readouterr()
    assert "All of this holds for this one image and this one network" in output
    assert "7 with " in output
    assert "how far to trust: Grad-CAM" in error


def test_unreadable_images_are_named_and_the_others_explained(capsys, tmp_path, weights, images):
    (tmp_path / "text.jpg").write_text("<html>")
    bad = [str(tmp_path / "text.jpg"), str(tmp_path / "absent.png")]
    words = ["explain", "--weights", weights, "--no-trust", "--methods", "grad_cam", "--output", str(tmp_path / "out")]
    assert main([*words, bad[0], images[0], bad[1]]) == 1
    output, error = capsys.readouterr()
    assert "a.png: gated.digits says " in output
    assert all(path in error for path in bad)
    assert error.splitlines()[-1] == "zoo: 2 of 3 images could not be read"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class", "77"], "'77' is no class of gated.digits."),
        (["--methods", "gradcam"], "unknown method 'gradcam'. Did you mean 'grad_cam'?"),
        (["--methods", "attention_rollout"], "'attention_rollout' does not suit the model"),
        (["--methods", "grad_cam"], "add it to methods (grad_cam) or go without"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, tmp_path, weights, images, words, message):
    assert main(["explain", "--weights", weights, *words, "--output", str(tmp_path / "out"), images[0]]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert message in error
    assert not (tmp_path / "out").exists()


def test_two_networks_are_shown_side_by_side(capsys, tmp_path, weights, images, save_tiny_weights):
    save_tiny_weights(tmp_path / "w" / "plain.digits.yaml")
    (tmp_path / "7").mkdir()
    labelled = Path(images[0]).rename(tmp_path / "7" / "a.png")
    output = tmp_path / "out"
    words = ["--against", str(tmp_path / "w" / "plain.digits.yaml"), "--no-trust", "--methods", "grad_cam"]
    assert main(["explain", "--weights", weights, *words, "--output", str(output), str(labelled), images[1]]) == 0
    shown = capsys.readouterr().out
    assert "a.png: gated.digits says " in shown
    assert "; it is 7: " in shown
    assert "Of 1 image whose class is known" in shown
    assert {path.name for path in output.iterdir()} == {"against.html", "a.png", "a.npz", "b.png", "b.npz"}


def test_a_class_that_only_one_network_knows_is_refused(capsys, tmp_path, weights, images, save_tiny_weights):
    names = [f"digit {number}" for number in range(10)]
    save_tiny_weights(
        tmp_path / "w" / "other.yaml", data={"name": "cluttered_digits", "split": "test", "class_names": names}
    )
    words = ["--against", str(tmp_path / "w" / "other.yaml"), "--no-trust", "--methods", "grad_cam", images[0]]
    assert main(["explain", "--weights", weights, *words]) == 2
    assert "is no class of other" in capsys.readouterr().err
