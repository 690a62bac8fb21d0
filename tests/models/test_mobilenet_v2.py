"""MobileNetV2: resolution, widths and places of the gates. Names and logits: tests/contracts."""

import pytest
import torch

import zoo
from zoo.models.mobilenet_v2 import InvertedResidual


@pytest.mark.parametrize("stride", [1, 2])
def test_gate_stands_between_depthwise_and_projection_on_the_expanded_width(stride):
    built = []

    def attention(channels: int) -> torch.nn.Module:
        built.append(channels)
        return torch.nn.Identity()

    block = InvertedResidual(16, 24, stride=stride, expand_ratio=4, attention=attention).eval()
    order = []
    for name in ("0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "attention", "2", "3"):
        block.conv.get_submodule(name).register_forward_hook(lambda *_, name=name: order.append(name))
    assert block(torch.rand(1, 16, 8, 8)).shape == (1, 24, 8 // stride, 8 // stride)
    assert built == [64]
    assert order == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "attention", "2", "3"]
    assert block.conv[1][0].groups == 64


@pytest.mark.parametrize(("out_channels", "stride", "expected"), [(16, 1, True), (16, 2, False), (24, 1, False)])
def test_skip_only_where_the_shape_is_kept(out_channels, stride, expected):
    block = InvertedResidual(16, out_channels, stride=stride, expand_ratio=6, attention=None).eval()
    torch.nn.init.zeros_(block.conv[3].weight)
    features = torch.rand(1, 16, 6, 6)
    output = block(features)
    assert torch.equal(output, features if expected else torch.zeros_like(output))


def test_stages_are_runs_of_one_resolution():
    with torch.device("meta"):
        places = zoo.create_model("mobilenet_v2", attention="se").attention_places()
    assert [place.stage for place in places] == [1, 2, 2, 3, 3, 3, *[4] * 7, *[5] * 4]
    assert [place.channels for place in places] == [
        32,
        96,
        144,
        144,
        192,
        192,
        192,
        *[384] * 4,
        576,
        576,
        576,
        *[960] * 3,
    ]
    assert places[0].name == "features.1.conv.attention"


@pytest.mark.parametrize(("stem", "size"), [("cifar", 4), ("imagenet", 1)])
def test_stem_decides_the_size_of_the_last_map(stem, size):
    model = zoo.create_model("mobilenet_v2", stem=stem, width_multiplier=0.25).eval()
    shapes = []
    model.features.register_forward_hook(lambda _, x, y: shapes.append(tuple(y.shape)))
    model(torch.zeros(1, 3, 32, 32))
    assert shapes == [(1, 1280, size, size)]


def test_dropout_acts_in_training_only():
    model = zoo.create_model("mobilenet_v2", stem="cifar", width_multiplier=0.25, dropout=0.5)
    features = torch.ones(1, 1280)
    assert not torch.equal(model.classifier(features), model.classifier(features))
    assert torch.equal(model.eval().classifier(features), model.classifier(features))
    with pytest.raises(ValueError, match="dropout"):
        zoo.create_model("mobilenet_v2", dropout=1.5)
