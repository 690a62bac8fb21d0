"""The collections of others, from a stand-in for the Hugging Face Hub on this machine."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch
import torchvision

import zoo
from benchmarks.parity import create_original
from zoo.pretrained import DownloadError, hub
from zoo.pretrained.hub import fetch_repository, fetch_timm, fetch_torchvision
from zoo.pretrained.name_maps import find_original

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TIMM_NAME = "mobilenetv3_small_100.lamb_in1k"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does, from ``server.files``: ``owner/name/file`` to content."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        self.server.requests.append(self.path)
        owner, name, *rest = self.path.strip("/").split("/")
        files = {key: value for key, value in self.server.files.items() if key.startswith(f"{owner}/{name}/")}
        content = files.get(f"{owner}/{name}/{rest[-1]}") if rest[:1] == ["resolve"] else None
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if files else "RepoNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.server.sent.get(self.path, content)
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def server(tmp_path: Path, monkeypatch) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.sent, server.requests = {}, {}, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("ZOO_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def small() -> torch.nn.Module:
    return create_original(find_original("timm", "mobilenetv3_small_100"))


def test_timm_weights_give_timms_logits(server, small) -> None:
    server.files[f"timm/{TIMM_NAME}/model.safetensors"] = safetensors.torch.save(small.state_dict())
    ours = zoo.create_model("mobilenet_v3_small", pretrained=f"timm:{TIMM_NAME}").eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = small(images)
        torch.testing.assert_close(ours(images), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_timm_weights_of_a_transformer_give_timms_logits_for_other_images_too(server) -> None:
    theirs = create_original(find_original("timm", "vit_tiny_patch16_224"), dynamic_img_size=True)
    name = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    server.files[f"timm/{name}/model.safetensors"] = safetensors.torch.save(theirs.state_dict())
    ours = zoo.create_model("vit_tiny_patch16_224", pretrained=f"timm:{name}").eval()
    smaller = zoo.create_model("vit_tiny_patch16_224", image_size=[64, 96], pretrained=f"timm:{name}").eval()
    images = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        expected = theirs(images)
        for model in (ours, smaller):
            torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_every_size_of_timms_transformers_is_found_by_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hub, "fetch_from_hub", lambda repository, files: tmp_path / repository / files[0])
    for name in (
        "vit_tiny_patch16_224.augreg_in21k",
        "vit_small_patch16_224.augreg_in1k",
        "vit_base_patch16_224.augreg_in1k",
    ):
        published = fetch_timm(name)
        assert published.path == tmp_path / "timm" / name / "model.safetensors"
        assert published.original.model == name.partition(".")[0]
        assert published.facts["preprocessing"]["mean"] == [0.5, 0.5, 0.5]


def test_what_timm_says_of_its_weights_is_kept(server, small) -> None:
    server.files[f"timm/{TIMM_NAME}/model.safetensors"] = safetensors.torch.save(small.state_dict())
    published = fetch_timm(TIMM_NAME)
    assert published.original == find_original("timm", "mobilenetv3_small_100")
    assert published.facts == {
        "licence": "apache-2.0",
        "preprocessing": {
            "height": 224,
            "width": 224,
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "resize": 256,
            "interpolation": "bicubic",
        },
    }


def test_a_repository_that_names_timms_architecture_is_read_by_its_map(server, small) -> None:
    server.files["me/net/config.json"] = json.dumps({"architecture": "mobilenetv3_small_100"}).encode()
    server.files["me/net/model.safetensors"] = safetensors.torch.save(small.state_dict())
    zoo.create_model("mobilenet_v3_small", pretrained="hf:me/net")
    assert fetch_repository("me/net").original == find_original("timm", "mobilenetv3_small_100")


def test_a_repository_that_names_no_architecture_must_be_told_it_where_it_matters(server, small) -> None:
    server.files["me/net/pytorch_model.bin"] = b""
    server.files["me/net/other.safetensors"] = safetensors.torch.save(small.state_dict())
    address = "hf:me/net:other.safetensors"
    with pytest.raises(ValueError, match=r"say which it is with hf:me/net:other\.safetensors#architecture=NAME"):
        zoo.create_model("mobilenet_v3_small", pretrained=address)
    zoo.create_model("mobilenet_v3_small", pretrained=f"{address}#architecture=mobilenetv3_small_100")
    with pytest.raises(ValueError, match="it pads as TensorFlow does"):
        zoo.create_model("mobilenet_v3_small", pretrained=f"{address}#architecture=tf_mobilenetv3_small_100")


def test_a_cached_file_is_used_without_a_request_and_offline(server, monkeypatch) -> None:
    server.files["me/net/model.safetensors"] = safetensors.torch.save({"fc.bias": torch.zeros(3)})
    path = fetch_repository("me/net").path
    seen = len(server.requests)
    assert fetch_repository("me/net").path == path
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    assert fetch_repository("me/net").path == path
    assert len(server.requests) == seen
    with pytest.raises(DownloadError, match=r"hf:me/other: config\.json is not in the cache, and requests are swit"):
        fetch_repository("me/other")


def test_a_file_that_is_not_what_the_hub_says_is_deleted(server, tmp_path: Path) -> None:
    content = safetensors.torch.save({"fc.bias": torch.zeros(3)})
    server.files["me/net/model.safetensors"] = content
    server.sent["/me/net/resolve/main/model.safetensors"] = content[:-1] + b"x"
    digest = hashlib.sha256(content).hexdigest()
    with pytest.raises(
        DownloadError, match=rf"model\.safetensors has sha256 [0-9a-f]{{64}}, expected {digest}: deleted"
    ):
        fetch_repository("me/net")
    assert not list(tmp_path.glob("hub/**/blobs/*"))
    server.sent.clear()
    assert fetch_repository("me/net").path.read_bytes() == content


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("me/net", r"hf:me/net has no model\.safetensors and no pytorch_model\.bin; name the file"),
        ("me/net:absent.bin", r"hf:me/net has no absent\.bin"),
        ("no/where", "hf:no/where"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(server, address: str, message: str) -> None:
    server.files["me/net/config.json"] = b"{}"
    with pytest.raises(DownloadError, match=message) as caught:
        fetch_repository(address)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["net", "a/b/c", "", "a/b@", "a/b:"])
def test_a_malformed_repository_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must have the form hf:owner/name"):
        fetch_repository(address)


def test_names_that_timm_does_not_know_or_has_no_weights_for_are_refused_before_any_request(server) -> None:
    with pytest.raises(ValueError, match=r"timm has no model 'resnet5O'\. Did you mean 'resnet50'\?"):
        fetch_timm("resnet5O")
    with pytest.raises(
        ValueError, match=r"timm has no weights 'resnet50\.a9_in1k'\. Of resnet50 it has: .*resnet50\.a1"
    ):
        fetch_timm("resnet50.a9_in1k")
    with pytest.raises(ValueError, match=r"timm has no weights 'seresnet18'\. Of seresnet18 it has: none"):
        fetch_timm("seresnet18")
    with pytest.raises(ValueError, match="it pads as TensorFlow does"):
        fetch_timm("tf_mobilenetv3_small_100.in1k")
    assert server.requests == []


def test_torchvision_weights_are_checked_by_the_digits_in_their_name(tmp_path: Path, monkeypatch) -> None:
    theirs = create_original(find_original("torchvision", "mobilenet_v3_small"))
    torch.save(theirs.state_dict(), tmp_path / "a.pth")
    asked = []
    monkeypatch.setattr(hub, "fetch", lambda url, **options: asked.append((url, options)) or tmp_path / "a.pth")
    name = "MobileNet_V3_Small_Weights.IMAGENET1K_V1"
    ours = zoo.create_model("mobilenet_v3_small", pretrained=f"torchvision:{name}").eval()
    url = torchvision.models.get_weight(name).url
    assert asked == [(url, {"sha256_start": url.rpartition("-")[2].removesuffix(".pth")})]
    assert len(asked[0][1]["sha256_start"]) == 8
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-5)
    assert fetch_torchvision(name).facts["preprocessing"]["resize"] == 256


def test_every_torchvision_network_with_a_counterpart_states_a_digest(monkeypatch) -> None:
    monkeypatch.setattr(hub, "fetch", lambda url, *, sha256_start: Path(sha256_start))
    for model in ("resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2", "mobilenet_v3_large", "vit_b_16"):
        for weights in torchvision.models.get_model_weights(model):
            assert len(fetch_torchvision(str(weights)).path.name) >= 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ResNet50_Weights.IMAGENET1K_V3", r"Did you mean 'ResNet50_Weights\.IMAGENET1K_V\d'\? It has: ResNet50_W"),
        ("ResNet5O_Weights.DEFAULT", r"Did you mean 'ResNet\d+_Weights'\?"),
        ("ResNeXt50_32X4D_Weights.IMAGENET1K_V1", "its blocks are grouped or wider inside"),
    ],
)
def test_torchvision_weights_without_a_counterpart_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fetch_torchvision(name)


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"timm: needs the package timm: pip install 'vision-attention-zoo\[timm\]'"):
        fetch_timm("resnet50.a1_in1k")


def test_the_wrong_model_of_ours_is_named(server, small) -> None:
    server.files[f"timm/{TIMM_NAME}/model.safetensors"] = safetensors.torch.save(small.state_dict())
    with pytest.raises(ValueError, match="timm's mobilenetv3_small_100 is our mobilenet_v3_small, not resnet18"):
        zoo.create_model("resnet18", pretrained=f"timm:{TIMM_NAME}")
    assert timm.is_model("mobilenetv3_small_100")
