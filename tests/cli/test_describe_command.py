import json

import pytest

from zoo.cli import main
from zoo.cli.describe_command import parse_options


def describe_json(capsys, *words: str) -> dict:
    assert main(["describe", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_parameters_macs_and_gate_widths_per_stage(capsys) -> None:
    description = describe_json(capsys, "resnet50", "--attention", "cbam")
    assert description["parameters"] == 28_089_624
    assert description["input_size"] == [3, 224, 224]
    widths = {gate["stage"]: gate["channels"] for gate in description["gates"]}
    assert widths == {1: 256, 2: 512, 3: 1024, 4: 2048}
    hidden = {gate["stage"]: gate["hidden_channels"] for gate in description["gates"]}
    assert hidden == {1: 16, 2: 32, 3: 64, 4: 128}


def test_the_table_says_the_same(capsys) -> None:
    assert main(["describe", "resnet20", "--attention", "cbam"]) == 0
    table = capsys.readouterr().out
    description = describe_json(capsys, "resnet20", "--attention", "cbam")
    for figure in ("parameters", "macs"):
        assert f"{description[figure]:,}" in table
    assert "layer3.2.attention" in table
    assert "reduction_ratio=16" in table


def test_every_argument_of_the_model_can_be_given(capsys) -> None:
    words = "resnet18 --attention se --attention-stages 2 4 --num-classes 7 --in-channels 1 --stem cifar"
    words += " --input-size 40 48 --attention-option reduction_ratio=8 --model-option width_multiplier=0.5"
    description = describe_json(capsys, *words.split())
    model = description["model"]
    assert model["attention_args"]["reduction_ratio"] == 8
    assert (model["num_classes"], model["in_channels"], model["stem"]) == (7, 1, "cifar")
    assert model["width_multiplier"] == 0.5
    assert description["input_size"] == [1, 40, 48]
    assert {gate["stage"] for gate in description["gates"]} == {2, 4}
    assert {(gate["height"], gate["width"]) for gate in description["gates"] if gate["stage"] == 2} == {(20, 24)}


def test_a_plain_net_has_no_gates(capsys) -> None:
    assert describe_json(capsys, "resnet20")["gates"] == []
    assert main(["describe", "resnet20"]) == 0
    assert "0 (0.00 %)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("resnet20 --attention cbma", "unknown attention 'cbma'. Did you mean 'cbam'?"),
        ("resnet20 --attention se --attention-option reduction=8", "Did you mean 'reduction_ratio'?"),
        ("resnet20 --attention se --attention-option reduction_ratio", "must have the form NAME=VALUE"),
        ("resnet20 --attention se --attention-option reduction_ratio=0", "reduction_ratio"),
        ("resnet20 --attention-option reduction_ratio=8", "has no effect"),
        ("resnet20 --model-option width=2", "unknown option 'width' of model 'resnet20'"),
        ("resnet20 --num-classes 0", "num_classes"),
        ("resnet20 --input-size 0 32", "height"),
        ("resnet20 --stem cifr", "stem"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, words: str, message: str) -> None:
    assert main(["describe", *words.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("zoo: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_option_values_are_yaml() -> None:
    options = parse_options(["a=1e-4", "b=true", "c=null", "d=[mean, max]", "e=no", "f=x=y", "g="])
    assert options == {"a": 0.0001, "b": True, "c": None, "d": ["mean", "max"], "e": "no", "f": "x=y", "g": None}


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="option 'a' is given twice"):
        parse_options(["a=1", "a=2"])


@pytest.fixture
def folder(tmp_path, save_tiny_weights):
    save_tiny_weights(tmp_path / "tiny.digits.yaml", command="python train.py --config x.yaml")
    return tmp_path


def test_weights_are_described_by_their_card_and_their_model(capsys, folder) -> None:
    assert main(["describe", "tiny.digits", "--folder", str(folder)]) == 0
    table = " ".join(capsys.readouterr().out.split())
    for shown in ("75.00 % top-1", "last epoch, in the file", "python train.py --config x.yaml", "17,", "Apache-2.0"):
        assert shown in table
    (content,) = [json.loads(text) for text in [describe_text(capsys, str(folder / "tiny.digits.yaml"), "--json")]]
    assert content["data"]["name"] == "cluttered_digits"
    assert content["model"]["width_multiplier"] == 0.25


def describe_text(capsys, *words: str) -> str:
    assert main(["describe", *words]) == 0
    return capsys.readouterr().out


def test_weights_whose_file_changed_are_not_described(capsys, folder) -> None:
    path = folder / "tiny.digits.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["describe", "tiny.digits", "--folder", str(folder)]) == 2
    assert "is not the file its card describes" in capsys.readouterr().err


def test_options_of_a_model_have_no_effect_on_weights_and_are_refused(capsys, folder) -> None:
    assert main(["describe", "tiny.digits", "--folder", str(folder), "--num-classes", "5"]) == 2
    assert "--num-classes has no effect: tiny.digits states its model itself" in capsys.readouterr().err
    assert main(["describe", "resnet20", "--folder", str(folder)]) == 2
    assert "--folder has no effect: 'resnet20' is no name of weights" in capsys.readouterr().err
