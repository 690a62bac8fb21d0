"""Cards and files from a server, and options that would have no effect."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import zoo
from zoo.pretrained import DownloadError, cache_folder, load_card, load_pretrained, read_card
from zoo.pretrained.reading import read_weights
from zoo.serialization import format_yaml, read_yaml, sha256_of


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path, monkeypatch) -> Iterator[str]:
    """Serve ``tmp_path / "served"``."""
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ZOO_OFFLINE", raising=False)
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_card_at_an_address_brings_its_tensors_and_offline_both_come_from_the_cache(
    address: str, tmp_path: Path, save_tiny_weights, tiny_model, monkeypatch
) -> None:
    save_tiny_weights(tmp_path / "served" / "tiny.digits.yaml")
    model, card = load_pretrained(f"{address}/tiny.digits.yaml", verify=True)
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(images), tiny_model.eval()(images))
    assert card.name == "tiny.digits"
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    load_pretrained(f"{address}/tiny.digits.yaml")
    zoo.create_model("resnet20", width_multiplier=0.25, pretrained=f"{address}/tiny.digits.yaml")
    with pytest.raises(DownloadError, match="requests are switched off"):
        load_pretrained(f"{address}/other.yaml")


def test_tensors_at_an_address_that_are_not_those_of_the_card_are_refused(address, tmp_path, save_tiny_weights) -> None:
    save_tiny_weights(tmp_path / "served" / "a.yaml")
    tensors = tmp_path / "served" / "a.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"x")
    with pytest.raises(DownloadError, match=f"has sha256 {sha256_of(tensors)}, expected .*: deleted"):
        load_pretrained(f"{address}/a.yaml")


def test_a_registered_name_whose_tensors_lie_elsewhere_is_fetched_and_checked(
    address: str, tmp_path: Path, save_tiny_weights
) -> None:
    folder = tmp_path / "weights"
    save_tiny_weights(folder / "far.digits.yaml")
    (folder / "far.digits.safetensors").rename(tmp_path / "served" / "x.safetensors")
    content = read_yaml(folder / "far.digits.yaml")
    content["tensors"]["url"] = f"{address}/x.safetensors"
    (folder / "far.digits.yaml").write_text(format_yaml(content))
    _, card = load_pretrained("far.digits", folder=folder, verify=True)
    assert [path.name for path in cache_folder().rglob("*.safetensors")] == ["x.safetensors"]
    assert read_card(folder / "far.digits.yaml") == card


@pytest.mark.parametrize("url", ["file:///etc/hostname", "x.safetensors", "", 3])
def test_a_card_whose_tensors_are_at_no_http_address_is_refused(tmp_path, save_tiny_weights, url) -> None:
    save_tiny_weights(tmp_path / "a.yaml")
    content = read_yaml(tmp_path / "a.yaml")
    content["tensors"]["url"] = url
    (tmp_path / "a.yaml").write_text(format_yaml(content))
    with pytest.raises(ValueError, match=r"tensors\.url must be an http or https address"):
        read_card(tmp_path / "a.yaml")


def test_a_foreign_file_at_an_address_is_read_and_its_digest_may_be_pinned(address, tmp_path, tiny_model) -> None:
    path = tmp_path / "served" / "a.pth"
    torch.save(tiny_model.state_dict(), path)
    digest = sha256_of(path)
    found = read_weights(f"{address}/a.pth#sha256={digest}")
    assert found.sha256 == digest
    zoo.create_model("resnet20", width_multiplier=0.25, pretrained=f"{address}/a.pth")
    with pytest.raises(DownloadError, match=f"has sha256 {digest}, expected {'0' * 64}"):
        read_weights(f"{address}/a.pth#sha256={'0' * 64}")


def test_a_pinned_digest_holds_for_a_file_on_this_machine_too(tmp_path: Path, tiny_model) -> None:
    path = tmp_path / "a.pth"
    torch.save(tiny_model.state_dict(), path)
    assert read_weights(f"{path}#sha256={sha256_of(path)}").sha256 == sha256_of(path)
    with pytest.raises(ValueError, match=f"has sha256 .*, expected {'0' * 64}"):
        read_weights(f"{path}#sha256={'0' * 64}")


@pytest.mark.parametrize("option", ["entry=ema", "architecture=resnet18", f"sha256={'0' * 64}"])
def test_options_that_a_card_makes_needless_are_refused(tmp_path: Path, save_tiny_weights, option: str) -> None:
    save_tiny_weights(tmp_path / "a.yaml")
    with pytest.raises(ValueError, match="has no effect"):
        read_weights(f"{tmp_path / 'a.yaml'}#{option}")


def test_an_architecture_is_not_taken_where_the_source_says_it() -> None:
    with pytest.raises(ValueError, match=r"architecture=resnet18 has no effect: resnet50\.a1_in1k says itself"):
        read_weights("timm:resnet50.a1_in1k#architecture=resnet18")


@pytest.mark.parametrize("source", ["timm:resnet50.a1_in1k", "hf:a/b", "https://host/a.pth"])
def test_weights_without_a_card_say_how_to_get_one(source: str) -> None:
    with pytest.raises(ValueError, match="has no card: zoo convert gives it one"):
        load_card(source)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*absent\.pth"):
        read_weights(tmp_path / "absent.pth")
