from pathlib import Path

import pytest

from zoo.pretrained.addresses import Address, parse_address

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("timm:resnet50.a1_in1k", Address("timm", "resnet50.a1_in1k")),
        ("torchvision:ResNet50_Weights.DEFAULT", Address("torchvision", "ResNet50_Weights.DEFAULT")),
        ("hf:owner/name@main:a.bin#entry=ema", Address("hf", "owner/name@main:a.bin", entry="ema")),
        ("https://host/a.pth", Address("url", "https://host/a.pth")),
        (f"https://host/a.pth?x=1#sha256={DIGEST}", Address("url", "https://host/a.pth?x=1", sha256=DIGEST)),
        ("https://host/a.yaml", Address("card", "https://host/a.yaml")),
        ("a.pth#entry=model.ema&architecture=resnet18", Address("file", "a.pth", None, "model.ema", "resnet18")),
        ("a.safetensors", Address("file", "a.safetensors")),
        ("resnet20.cifar10", Address("card", "resnet20.cifar10")),
        ("runs/x/seed0", Address("card", "runs/x/seed0")),
        ("a.yaml", Address("card", "a.yaml")),
        ("C#/a.pth", Address("file", "C#/a.pth")),
    ],
)
def test_every_kind_of_address_is_told_from_the_others(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_files_are_told_by_the_card_beside_them(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").touch()
    (tmp_path / "plain").touch()
    assert parse_address(tmp_path / "a.safetensors").kind == "file"
    assert parse_address(tmp_path / "plain").kind == "file"
    assert parse_address(tmp_path).kind == "card"
    (tmp_path / "a.yaml").touch()
    assert parse_address(tmp_path / "a.safetensors").kind == "card"


def test_a_path_object_is_taken_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "a.pth#entry=ema"
    odd.touch()
    assert parse_address(odd) == Address("file", str(odd))


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_nothing_is_refused_with_what_could_be_given(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no weights: give a name \(zoo list weights\), a file, a run folder"):
        parse_address(text)


def test_unknown_options_and_malformed_digests_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'entri'\. Did you mean 'entry'\?"):
        parse_address("a.pth#entri=ema")
    for digest in ("", "abc", DIGEST[:63], DIGEST.upper()):
        with pytest.raises(ValueError, match="sha256 must be 64 lower-case"):
            parse_address(f"https://host/a.pth#sha256={digest}")
