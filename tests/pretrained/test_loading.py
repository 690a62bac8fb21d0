import pickle
import shutil
import socket
from pathlib import Path

import pytest
import safetensors.torch
import torch

import zoo
from zoo.pretrained import find_card, list_weights, load_card, load_into, load_pretrained, loading
from zoo.serialization import format_yaml, read_yaml, sha256_of


@pytest.fixture
def folder(tmp_path: Path, save_tiny_weights) -> Path:
    """Two sets of weights and a run."""
    folder = tmp_path / "weights"
    save_tiny_weights(folder / "resnet20.digits.yaml")
    save_tiny_weights(folder / "resnet20_se.digits.yaml")
    save_tiny_weights(tmp_path / "run" / "weights.yaml")
    return folder


def replace_tensors(card_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Change the tensors and their hash on the card."""
    safetensors.torch.save_file(tensors, card_path.with_suffix(".safetensors"))
    content = read_yaml(card_path)
    content["tensors"]["sha256"] = sha256_of(card_path.with_suffix(".safetensors"))
    card_path.write_text(format_yaml(content))


@pytest.mark.parametrize("source", ["weights/resnet20.digits.yaml", "weights/resnet20.digits.safetensors", "run"])
def test_a_card_a_tensor_file_and_a_run_folder_are_sources(folder: Path, source: str, tiny_model) -> None:
    model, card = load_pretrained(folder.parent / source)
    assert card.data["name"] == "cluttered_digits"
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(image), tiny_model.eval()(image))


def test_a_name_is_looked_up_in_the_folder_given(folder: Path) -> None:
    assert find_card("resnet20_se.digits", folder=folder) == folder / "resnet20_se.digits.yaml"
    assert list_weights(folder) == ["resnet20.digits", "resnet20_se.digits"]


def test_a_name_is_looked_up_in_the_checkout_before_the_package(folder: Path, tmp_path: Path, monkeypatch) -> None:
    package = shutil.copytree(folder, tmp_path / "package")
    (folder / "resnet20_se.digits.yaml").unlink()
    monkeypatch.setattr(loading, "weight_folders", lambda: [folder, package])
    assert find_card("resnet20.digits").parent == folder
    assert find_card("resnet20_se.digits").parent == package
    assert list_weights() == ["resnet20.digits", "resnet20_se.digits"]


def test_an_unknown_name_says_what_is_near_and_where_it_was_looked_for(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown weights 'resnet20\.digit'") as caught:
        load_pretrained("resnet20.digit", folder=folder)
    message = str(caught.value)
    assert "Did you mean 'resnet20.digits'?" in message
    assert f"Looked in: {folder}" in message
    assert "Known: resnet20.digits, resnet20_se.digits" in message


def test_a_folder_given_is_the_only_one_searched(folder: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(loading, "weight_folders", lambda: [folder])
    with pytest.raises(ValueError, match="Known: -"):
        find_card("resnet20.digits", folder=tmp_path / "empty")
    with pytest.raises(ValueError, match="there is no folder"):
        find_card("resnet20.digits", folder=tmp_path / "absent")


@pytest.mark.parametrize("name", ["absent.yaml", "absent.safetensors", "absent/absent", "absent/"])
def test_a_path_that_does_not_exist_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        load_card(f"{tmp_path}/{name}")


def test_tensors_without_a_card_and_a_card_without_tensors_are_named(folder: Path) -> None:
    (folder / "resnet20.digits.yaml").unlink()
    with pytest.raises(ValueError, match=r"there is no file .*resnet20\.digits\.yaml"):
        load_pretrained(folder / "resnet20.digits.safetensors")
    (folder / "resnet20_se.digits.safetensors").unlink()
    with pytest.raises(ValueError, match=r"names resnet20_se\.digits\.safetensors, which is not beside it"):
        load_pretrained(folder / "resnet20_se.digits.yaml")


def test_an_unfinished_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no weights\.yaml: it is not the folder of a finished run"):
        load_pretrained(tmp_path)


class WritesMarker:
    """Unpickling this writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".ckpt", ".th", ".bin", ".pkl", ".PTH"])
def test_a_pickle_is_refused_unopened(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps(WritesMarker(tmp_path / "marker")))
    with pytest.raises(ValueError, match="is a pickle, which can run code when opened"):
        load_pretrained(path)
    assert not (tmp_path / "marker").exists()


def test_a_pickle_called_safetensors_with_a_matching_hash_is_refused_unopened(folder: Path, tmp_path: Path) -> None:
    card_path = folder / "resnet20.digits.yaml"
    pickled = pickle.dumps(WritesMarker(tmp_path / "marker"))
    card_path.with_suffix(".safetensors").write_bytes(pickled)
    content = read_yaml(card_path)
    content["tensors"]["sha256"] = sha256_of(card_path.with_suffix(".safetensors"))
    card_path.write_text(format_yaml(content))
    with pytest.raises(ValueError, match="is not a safetensors file"):
        load_pretrained(card_path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("position", [0, 8, -1])
def test_one_changed_byte_is_noticed_and_both_digests_are_given(folder: Path, position: int) -> None:
    path = folder / "resnet20.digits.safetensors"
    content = bytearray(path.read_bytes())
    expected = sha256_of(path)
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"sha256 {sha256_of(path)}, expected {expected}"):
        load_pretrained("resnet20.digits", folder=folder)


def test_a_cut_file_is_noticed(folder: Path) -> None:
    path = folder / "resnet20.digits.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not the file its card describes"):
        load_pretrained("resnet20.digits", folder=folder)


def test_a_hash_that_differs_only_in_its_last_digit_is_noticed(folder: Path) -> None:
    card_path = folder / "resnet20.digits.yaml"
    digest = read_yaml(card_path)["tensors"]["sha256"]
    card_path.write_text(card_path.read_text().replace(digest, digest[:-1] + ("0" if digest[-1] != "0" else "1")))
    with pytest.raises(ValueError, match="is not the file its card describes"):
        load_pretrained(card_path)


def test_missing_unexpected_and_misshapen_tensors_are_listed(folder: Path) -> None:
    card_path = folder / "resnet20.digits.yaml"
    tensors = safetensors.torch.load_file(card_path.with_suffix(".safetensors"))
    del tensors["layer1.0.conv1.weight"]
    tensors["module.fc.bias"] = tensors["fc.bias"]
    tensors["fc.bias"] = torch.zeros(7)
    replace_tensors(card_path, tensors)
    with pytest.raises(ValueError, match="do not fit the model") as caught:
        load_pretrained(card_path)
    message = str(caught.value)
    assert "1 missing (layer1.0.conv1.weight)" in message
    assert "1 unexpected (module.fc.bias)" in message
    assert "1 of another shape (fc.bias (7,) instead of (10,))" in message


def test_a_foreign_file_loads_nothing(folder: Path, tiny_model) -> None:
    card_path = folder / "resnet20.digits.yaml"
    replace_tensors(card_path, {"x": torch.zeros(1)})
    before = {name: tensor.clone() for name, tensor in tiny_model.state_dict().items()}
    with pytest.raises(ValueError, match=r"\d+ missing \(.*, \.\.\.\); 1 unexpected \(x\)"):
        load_into(tiny_model, card_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tiny_model.state_dict().items())


def test_a_wrong_parameter_count_on_the_card_is_noticed(folder: Path) -> None:
    card_path = folder / "resnet20.digits.yaml"
    content = read_yaml(card_path)
    content["tensors"]["num_parameters"] += 1
    card_path.write_text(format_yaml(content))
    with pytest.raises(ValueError, match="parameters, but the card says"):
        load_pretrained(card_path)


def test_a_fingerprint_that_the_code_no_longer_gives_is_noticed_when_asked_for(folder: Path) -> None:
    card_path = folder / "resnet20.digits.yaml"
    content = read_yaml(card_path)
    content["fingerprint"]["logits"][3] += 0.01
    card_path.write_text(format_yaml(content))
    load_pretrained(card_path)
    with pytest.raises(ValueError, match=r"logits of the fixed input differ from the card's by 0\.01"):
        load_pretrained(card_path, verify=True)


def test_pretrained_fills_a_model_of_the_same_arguments(folder: Path, tiny_model) -> None:
    model = zoo.create_model("resnet20", width_multiplier=0.25, pretrained=str(folder / "resnet20.digits.yaml"))
    assert all(
        torch.equal(*pair) for pair in zip(model.state_dict().values(), tiny_model.state_dict().values(), strict=True)
    )


def test_pretrained_in_a_model_that_computes_something_else_is_refused_though_the_shapes_fit(folder: Path) -> None:
    # The names and shapes would fit; only the arguments tell that the net is another one.
    card = load_card(folder / "resnet20.digits.yaml")
    model = zoo.create_model("resnet20", width_multiplier=0.25)
    model.config = {**model.config, "shortcut": "other"}
    with pytest.raises(ValueError, match="shortcut is 'other', not 'pad'"):
        load_into(model, card.path)


def test_a_card_older_than_an_option_means_the_default_of_it(folder: Path, tiny_model) -> None:
    card_path = folder / "resnet20.digits.yaml"
    content = read_yaml(card_path)
    del content["model"]["shortcut"]
    card_path.write_text(format_yaml(content))
    load_pretrained(card_path, verify=True)
    load_into(tiny_model, card_path)


def test_no_socket_is_opened(folder: Path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    load_pretrained("resnet20.digits", folder=folder, verify=True)
    zoo.create_model("resnet20")
    with pytest.raises(ValueError, match="unknown weights 'absent'"):
        load_pretrained("absent", folder=folder)


def test_weights_that_come_with_the_zoo_are_listed_and_verified() -> None:
    for name in list_weights():
        load_pretrained(name, verify=True)
