import enum
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import zoo
from zoo.pretrained import load_pretrained, saving
from zoo.serialization import sha256_of


def assert_same_state(first: nn.Module, second: nn.Module) -> None:
    expected, found = first.state_dict(), second.state_dict()
    assert list(expected) == list(found)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_saves_and_loads_back_bit_by_bit(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    card = save_tiny_weights(tmp_path / "a.yaml")
    loaded, loaded_card = load_pretrained(tmp_path / "a.yaml", verify=True)
    assert_same_state(tiny_model, loaded)
    assert loaded_card == card
    assert not loaded.training
    assert card.tensors["sha256"] == sha256_of(tmp_path / "a.safetensors")
    assert card.tensors["num_parameters"] == sum(parameter.numel() for parameter in tiny_model.parameters())
    assert card.tensors["dtype"] == "float32"


def test_a_channels_last_model_saves_and_loads_into_a_contiguous_one(tmp_path, tiny_model, save_tiny_weights) -> None:
    tiny_model.to(memory_format=torch.channels_last)
    assert not tiny_model.state_dict()["layer1.0.conv1.weight"].is_contiguous()
    save_tiny_weights(tmp_path / "a.yaml")
    assert not tiny_model.state_dict()["layer1.0.conv1.weight"].is_contiguous(), "the model itself stays as it was"
    loaded, _ = load_pretrained(tmp_path / "a.yaml", verify=True)
    assert_same_state(tiny_model, loaded)
    assert all(tensor.is_contiguous() for tensor in loaded.state_dict().values())


def test_layout_does_not_change_the_bytes(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    first = save_tiny_weights(tmp_path / "a.yaml")
    second = save_tiny_weights(tmp_path / "b.yaml", tiny_model.to(memory_format=torch.channels_last))
    assert first.tensors["sha256"] == second.tensors["sha256"]


@pytest.mark.parametrize("wrappers", ["c", "m", "mc", "cm", "mm", "mcm"])
def test_wrappers_in_any_order_leave_no_prefix(tmp_path, tiny_model, save_tiny_weights, wrappers: str) -> None:
    wrapped = tiny_model
    for wrapper in reversed(wrappers):
        wrapped = torch.compile(wrapped) if wrapper == "c" else nn.DataParallel(wrapped)
    assert next(iter(wrapped.state_dict())).startswith(("_orig_mod.", "module."))
    save_tiny_weights(tmp_path / "a.yaml", wrapped)
    assert_same_state(tiny_model, load_pretrained(tmp_path / "a.yaml")[0])


def test_averaged_weights_are_saved_as_those_of_the_model(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    average = torch.optim.swa_utils.AveragedModel(tiny_model)
    save_tiny_weights(tmp_path / "a.yaml", average)
    assert_same_state(tiny_model, load_pretrained(tmp_path / "a.yaml")[0])


def test_a_compiled_part_leaves_no_prefix(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    tiny_model.layer1 = torch.compile(tiny_model.layer1)
    assert any("_orig_mod" in name for name in tiny_model.state_dict())
    save_tiny_weights(tmp_path / "a.yaml")
    assert not any("_orig_mod" in name for name in safetensors.torch.load_file(tmp_path / "a.safetensors"))


def test_training_goes_on_undisturbed(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    tiny_model.train()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    save_tiny_weights(tmp_path / "a.yaml")
    load_pretrained(tmp_path / "a.yaml")
    assert torch.equal(torch.rand(3), expected)
    assert tiny_model.training


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Recipe:
    peak_lr: float
    root: Path


def test_paths_numpy_numbers_enums_and_dataclasses_become_plain(tmp_path: Path, save_tiny_weights) -> None:
    training = {"recipe": Recipe(0.1, Path("data") / "x"), "colour": Colour.RED, "steps": np.int64(3), "size": (3, 4)}
    metrics = {"selected_epoch": {"top1": np.float64(0.5)}, "last_epoch": {"top1": torch.tensor(0.25)}}
    save_tiny_weights(tmp_path / "a.yaml", training=training, metrics=metrics)
    _, card = load_pretrained(tmp_path / "a.yaml")
    assert card.training == {
        "recipe": {"peak_lr": 0.1, "root": "data/x"},
        "colour": "red",
        "steps": 3,
        "size": [3, 4],
    }
    assert card.metrics["selected_epoch"] == {"top1": 0.5}
    assert card.metrics["last_epoch"] == {"top1": 0.25}


def test_what_has_no_plain_form_is_named_and_nothing_is_written(tmp_path: Path, save_tiny_weights) -> None:
    with pytest.raises(ValueError, match=r"training\.callbacks\[1\] is a object; a card holds plain values only"):
        save_tiny_weights(tmp_path / "a.yaml", training={"callbacks": [1, object()]})
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_was_not_created_by_name_is_refused(tmp_path: Path, save_tiny_weights) -> None:
    with pytest.raises(ValueError, match="Linear has no config: only a model made by create_model"):
        save_tiny_weights(tmp_path / "a.yaml", nn.Linear(3, 10))


def test_a_model_changed_since_it_was_created_is_refused(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    tiny_model.extra = nn.Linear(3, 3)
    with pytest.raises(ValueError, match=r"do not fit the model: 2 unexpected \(extra\.bias, extra\.weight\)"):
        save_tiny_weights(tmp_path / "a.yaml")
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_nan_weights_is_refused(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    with torch.no_grad():
        next(tiny_model.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="NaN or infinite logits for the fixed input"):
        save_tiny_weights(tmp_path / "a.yaml")
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_could_not_be_read_back_is_not_written(tmp_path: Path, save_tiny_weights) -> None:
    with pytest.raises(ValueError, match=r"metrics\.last_epoch\.top1 must be a fraction"):
        save_tiny_weights(tmp_path / "a.yaml", metrics={"selected_epoch": {}, "last_epoch": {"top1": 91.0}})
    with pytest.raises(ValueError, match=r"metrics\.stored must be selected_epoch or last_epoch, not 'best'"):
        save_tiny_weights(tmp_path / "a.yaml", stored="best")
    with pytest.raises(ValueError, match=r"card_path must end in \.yaml"):
        save_tiny_weights(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_earlier_weights(tmp_path: Path, tiny_model, save_tiny_weights, monkeypatch) -> None:
    save_tiny_weights(tmp_path / "a.yaml")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with torch.no_grad():
        next(tiny_model.parameters()).add_(1)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device while writing"):
        save_tiny_weights(tmp_path / "a.yaml")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_kill_between_tensors_and_card_is_noticed_when_loading(tmp_path, tiny_model, save_tiny_weights) -> None:
    save_tiny_weights(tmp_path / "a.yaml")
    card = (tmp_path / "a.yaml").read_bytes()
    with torch.no_grad():
        next(tiny_model.parameters()).add_(1)
    save_tiny_weights(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_bytes(card)
    with pytest.raises(ValueError, match="is not the file its card describes"):
        load_pretrained(tmp_path / "a.yaml")


def test_shared_parameters_are_saved(tmp_path: Path, tiny_model, save_tiny_weights) -> None:
    tiny_model.layer1[1].conv1.weight = tiny_model.layer1[0].conv1.weight
    save_tiny_weights(tmp_path / "a.yaml")
    assert_same_state(tiny_model, load_pretrained(tmp_path / "a.yaml")[0])


def test_unwrapping_stops_at_the_model(tiny_model) -> None:
    assert saving.unwrap_model(tiny_model) is tiny_model
    assert saving.unwrap_model(nn.DataParallel(torch.compile(tiny_model))) is tiny_model


def test_weights_load_in_another_process_without_lightning_torchvision_or_torchmetrics(
    tmp_path: Path, save_tiny_weights
) -> None:
    save_tiny_weights(tmp_path / "a.yaml")
    code = (
        "import sys, zoo; zoo.load_pretrained(sys.argv[1], verify=True);"
        "print(sorted({'lightning', 'torchvision', 'torchmetrics', 'PIL', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.yaml"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small"])
@pytest.mark.parametrize("attention", [None, "none", "cbam"])
def test_models_of_other_kinds_save_and_load(tmp_path: Path, save_tiny_weights, name: str, attention) -> None:
    model = zoo.create_model(name, attention=attention, num_classes=10, stem="cifar", width_multiplier=0.25)
    save_tiny_weights(tmp_path / "a.yaml", model)
    loaded, card = load_pretrained(tmp_path / "a.yaml", verify=True)
    assert_same_state(model, loaded)
    assert card.model["attention"] == attention
