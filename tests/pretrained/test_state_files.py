import argparse
import enum
import itertools
import os
import pathlib
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from zoo.pretrained.state_files import is_safetensors, peel_prefixes, read_state_file

STATE = {"conv1.weight": torch.arange(4.0).reshape(2, 2), "fc.bias": torch.ones(3)}


class RunsCode:
    """Unpickling this runs a command of our own, which leaves a marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (os.system, (f"touch '{self.marker}'",))


class Colour(enum.Enum):
    RED = "red"


def save(path: Path, content: object, **options) -> Path:
    torch.save(content, path, **options)
    return path


def assert_is_state(tensors: dict[str, torch.Tensor]) -> None:
    assert list(tensors) == list(STATE)
    assert all(torch.equal(tensors[name], STATE[name]) for name in STATE)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("suffix", [".pth", ".pt", ".th", ".bin", ""])
def test_a_state_dict_is_read_in_both_formats_of_torch_whatever_its_suffix(tmp_path, zipped: bool, suffix: str) -> None:
    path = save(tmp_path / f"a{suffix}", STATE, _use_new_zipfile_serialization=zipped)
    file = read_state_file(path)
    assert_is_state(file.tensors)
    assert (file.entry, file.peeled, file.ignored) == (None, (), {})


def test_the_content_tells_safetensors_not_the_name(tmp_path: Path) -> None:
    safetensors.torch.save_file(STATE, tmp_path / "a.pth")
    assert is_safetensors(tmp_path / "a.pth")
    assert_is_state(read_state_file(tmp_path / "a.pth").tensors)
    assert not is_safetensors(save(tmp_path / "b.safetensors", STATE))
    with pytest.raises(ValueError, match="entry 'ema' has no effect"):
        read_state_file(tmp_path / "a.pth", entry="ema")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path, zipped: bool) -> None:
    marker = tmp_path / "marker"
    content = {"state_dict": STATE, "extra": RunsCode(marker)}
    path = save(tmp_path / "a.pth", content, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"opening it would run posix\.system, so it is refused"):
        read_state_file(path)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "the file is as malicious as the test says"


def test_a_bare_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(RunsCode(tmp_path / "marker")))
    with pytest.raises(ValueError, match=r"is neither a safetensors file nor plain tensors"):
        read_state_file(tmp_path / "a.pkl")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("content", "named"), [(nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear"), ({"x": Colour.RED}, "Colour")]
)
def test_whole_modules_and_classes_of_others_are_refused_by_name(tmp_path: Path, content, named: str) -> None:
    with pytest.raises(ValueError, match=f"would run .*{named}.*ask its maker for a state dict"):
        read_state_file(save(tmp_path / "a.pth", content))


def test_a_program_of_torchscript_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(nn.ReLU()), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="is a TorchScript program"):
        read_state_file(tmp_path / "a.pt")


def test_options_paths_and_numpy_numbers_of_a_training_run_do_not_hinder(tmp_path: Path) -> None:
    arguments = argparse.Namespace(lr=0.1, root=pathlib.PurePosixPath("a") / "b")
    content = {"state_dict": STATE, "args": arguments, "best": np.float64(0.9), "epoch": np.int64(3), "path": tmp_path}
    assert_is_state(read_state_file(save(tmp_path / "a.pth", content)).tensors)


@pytest.mark.parametrize("kind", [b"WindowsPath", b"PosixPath"])
def test_a_path_of_another_system_does_not_hinder(tmp_path: Path, kind: bytes) -> None:
    path = save(tmp_path / "a.pth", {"state_dict": STATE, "root": tmp_path}, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"PosixPath", kind))
    assert kind in path.read_bytes()
    assert_is_state(read_state_file(path).tensors)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged, or no file that torch.save wrote: EOFError|Ran out of input"),
        (b"<html>404</html>", "neither a safetensors file nor plain tensors that torch.save wrote"),
        (b"PK\x03\x04 and no archive", "is damaged, or no file that torch.save wrote"),
    ],
)
def test_what_is_no_file_of_weights_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_state_file(tmp_path / "a.pth")


def test_a_cut_file_is_named_in_both_formats(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "a.pth")
    safetensors.torch.save_file(STATE, tmp_path / "b.safetensors")
    for path in (tmp_path / "a.pth", tmp_path / "b.safetensors"):
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(ValueError, match=f"{path.name} is (damaged|not a whole safetensors file)"):
            read_state_file(path)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*absent\.pth"):
        read_state_file(tmp_path / "absent.pth")


@pytest.mark.parametrize("content", [[1, 2], torch.zeros(3), {"epoch": 3}, {"weight": torch.zeros(1)}, {}])
def test_a_file_without_named_tensors_is_named(tmp_path: Path, content) -> None:
    with pytest.raises(ValueError, match="holds no named tensors, but a"):
        read_state_file(save(tmp_path / "a.pth", content))


@pytest.mark.parametrize("path", [["state_dict"], ["model"], ["net"], ["checkpoint", "model"]])
def test_the_one_set_of_weights_in_a_checkpoint_is_found(tmp_path: Path, path: list[str]) -> None:
    content: object = STATE
    for key in reversed(path):
        content = {key: content, "epoch": 3, "optimizer": {"state": {0: {"momentum": torch.zeros(2)}}}}
    file = read_state_file(save(tmp_path / "a.pth", content))
    assert file.entry == ".".join(path)
    assert_is_state(file.tensors)


def test_averaged_weights_are_chosen_by_name_and_never_by_chance(tmp_path: Path) -> None:
    averaged = {name: tensor + 1 for name, tensor in STATE.items()}
    path = save(tmp_path / "a.pth", {"state_dict": STATE, "state_dict_ema": averaged, "epoch": 1})
    with pytest.raises(ValueError, match=r"several sets of weights: state_dict, state_dict_ema \(state_dict_ema avera"):
        read_state_file(path)
    assert_is_state(read_state_file(path, entry="state_dict").tensors)
    assert torch.equal(read_state_file(path, entry="state_dict_ema").tensors["fc.bias"], averaged["fc.bias"])
    with pytest.raises(ValueError, match=r"no weights under 'state_dict_ma'\. Did you mean 'state_dict_ema'\?"):
        read_state_file(path, entry="state_dict_ma")


PREFIXES = ("module.", "_orig_mod.", "model.")


@pytest.mark.parametrize(
    "stack",
    [*itertools.permutations(PREFIXES, 1), *itertools.product(PREFIXES, repeat=2), *itertools.permutations(PREFIXES)],
    ids="".join,
)
def test_prefixes_are_peeled_in_every_order_and_when_doubled(stack: tuple[str, ...]) -> None:
    tensors, peeled = peel_prefixes({"".join(stack) + name: tensor for name, tensor in STATE.items()})
    assert_is_state(tensors)
    assert peeled == stack


def test_a_wrapper_in_the_middle_of_a_name_is_peeled() -> None:
    name = "model.layer1._orig_mod.0._fsdp_wrapped_module.conv1.weight"
    tensors, peeled = peel_prefixes({name: torch.zeros(1), "model.fc.bias": torch.zeros(1)})
    assert list(tensors) == ["layer1.0.conv1.weight", "fc.bias"]
    assert peeled == ("model.", "_fsdp_wrapped_module.", "_orig_mod.")


def test_names_with_and_without_a_prefix_are_refused(tmp_path: Path) -> None:
    mixed = {"module.conv1.weight": torch.zeros(1), "fc.bias": torch.zeros(1), "fc.weight": torch.zeros(1)}
    message = r"1 of 3 names begin with 'module\.', 2 do not \(fc\.bias, fc\.weight\)"
    with pytest.raises(ValueError, match=message):
        peel_prefixes(mixed)
    with pytest.raises(ValueError, match=rf"a\.pth: {message}"):
        read_state_file(save(tmp_path / "a.pth", mixed))


def test_two_names_that_become_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two tensors are called 'layer1\.bias' once the prefixes"):
        peel_prefixes({"layer1.bias": torch.zeros(1), "layer1._orig_mod.bias": torch.zeros(1)})


def test_counters_of_averages_and_profilers_are_left_out_with_the_reason(tmp_path: Path) -> None:
    average = torch.optim.swa_utils.AveragedModel(nn.Sequential(nn.Linear(2, 2)))
    state = {**average.state_dict(), "module.0.total_ops": torch.zeros(1)}
    file = read_state_file(save(tmp_path / "a.pth", state))
    assert sorted(file.tensors) == ["0.bias", "0.weight"]
    assert file.ignored == {
        "n_averaged": "how many models an average is made of",
        "module.0.total_ops": "a counter of a profiler",
    }
