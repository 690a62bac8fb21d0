import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

import zoo
from zoo.pretrained import exporting, load_card, load_pretrained
from zoo.pretrained.exporting import CHECKED_BATCH_SIZES, TRACED_BATCH_SIZE, compare_with_eager, export_weights
from zoo.serialization import sha256_of


@pytest.fixture
def card(tmp_path: Path, save_tiny_weights) -> Path:
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", attention="cbam", width_multiplier=0.25)
    with torch.no_grad():
        model(torch.randn(8, 3, 32, 32))
    save_tiny_weights(tmp_path / "tiny.digits.yaml", model)
    return tmp_path / "tiny.digits.yaml"


def assert_described(path: Path, card_path: Path, file_format: str) -> None:
    description = json.loads(Path(f"{path}.json").read_text())
    card = load_card(card_path)
    assert description["sha256"] == sha256_of(path)
    assert description["format"] == file_format
    assert description["input"]["shape"] == ["batch", 3, 32, 32]
    assert description["output"]["shape"] == ["batch", 10]
    assert description["preprocessing"].items() >= card.preprocessing.items()
    assert description["class_names"] == list(card.class_names)
    assert set(description["largest_difference_by_batch_size"]) == {"1", "2", "5"}


def test_an_onnx_file_takes_any_batch_and_gives_the_models_logits(card: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "tiny.onnx"
    export_weights(card, path, file_format="onnx")
    assert_described(path, card, "onnx")
    model, _ = load_pretrained(card)
    session = onnxruntime.InferenceSession(str(path))
    (entry,) = session.get_inputs()
    assert entry.name == "images"
    assert isinstance(entry.shape[0], str), "the batch is a name, not a number"
    for batch_size in (1, 4, 7):
        images = torch.randn(batch_size, 3, 32, 32)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        np.testing.assert_allclose(logits, model(images).detach().numpy(), atol=1e-4)


def test_a_program_of_torch_takes_any_batch_and_gives_the_models_logits(card: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt2"
    export_weights(card, path, file_format="pt2")
    assert_described(path, card, "pt2")
    model, _ = load_pretrained(card)
    program = torch.export.load(path).module()
    for batch_size in (1, 4):
        images = torch.randn(batch_size, 3, 32, 32)
        torch.testing.assert_close(program(images), model(images), rtol=0, atol=1e-5)


def test_bare_tensors_are_those_of_the_card(card: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.safetensors"
    description = export_weights(card, path, file_format="safetensors")
    assert_described(path, card, "safetensors")
    assert all(difference == 0 for difference in description["largest_difference_by_batch_size"].values())
    expected = load_pretrained(card)[0].state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in load_file(path).items())


def test_the_sizes_checked_are_others_than_the_one_traced() -> None:
    assert len(CHECKED_BATCH_SIZES) == 3
    assert TRACED_BATCH_SIZE not in CHECKED_BATCH_SIZES


@pytest.mark.parametrize(
    ("exported", "message"),
    [
        (lambda images: torch.zeros(2, 10), r"answers a batch of 1 with \(2, 10\), not \(1, 10\)"),
        (lambda images: torch.zeros(len(images), 10), "gives other logits for a batch of 1: they differ by"),
        (lambda images: torch.full((len(images), 10), float("nan")), "they differ by nan"),
        (lambda images: images.reshape(2, 10), "refuses a batch of 1: shape"),
    ],
)
def test_a_program_that_answers_otherwise_is_found_out(card: Path, exported, message: str) -> None:
    model, read = load_pretrained(card)
    with pytest.raises(ValueError, match=message):
        compare_with_eager(model, exported, read)


def test_a_batch_baked_in_is_found_out_and_nothing_is_left_behind(card: Path, tmp_path: Path, monkeypatch) -> None:
    def bake(model, card, path):
        torch.export.save(torch.export.export(model, (torch.randn(2, *card.input_size),)), path)

    monkeypatch.setattr(exporting, "write_pt2", bake)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"the exported tiny\.digits refuses a batch of 1"):
        export_weights(card, tmp_path / "tiny.pt2", file_format="pt2")
    assert sorted(tmp_path.iterdir()) == before


def test_an_unknown_format_and_a_missing_package_are_named(card: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(ValueError, match="format 'tflite' must be one of onnx, pt2, safetensors"):
        export_weights(card, tmp_path / "a", file_format="tflite")
    monkeypatch.setattr(exporting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs onnx: pip install 'vision-attention-zoo\[onnx\]'"):
        export_weights(card, tmp_path / "a.onnx", file_format="onnx")


@pytest.mark.parametrize("file_format", ["onnx", "pt2"])
@pytest.mark.parametrize("options", [{}, {"pooling": "mean", "positions": "rotary"}], ids=["learned", "rotary"])
def test_a_vision_transformer_takes_any_batch(
    tmp_path: Path, save_tiny_weights, file_format: str, options: dict[str, str]
) -> None:
    torch.manual_seed(0)
    model = zoo.create_model("vit_tiny_patch4_32", embed_dim=32, depth=1, num_heads=1, **options)
    save_tiny_weights(tmp_path / "vit.yaml", model)
    path = tmp_path / f"vit.{file_format}"
    export_weights(tmp_path / "vit.yaml", path, file_format=file_format)
    assert_described(path, tmp_path / "vit.yaml", file_format)
