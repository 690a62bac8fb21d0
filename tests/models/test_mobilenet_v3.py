"""MobileNetV3: its own gate, what takes its place, resolution. Names and logits: tests/contracts."""

import copy

import pytest
import torch
import torchvision

import zoo
from zoo.models.mobilenet_v3 import HardSqueezeExcitation

STAGES = {"mobilenet_v3_small": [1, 3, 3, 3, 3, 3, 4, 4, 4], "mobilenet_v3_large": [3, 3, 3, 4, 4, 5, 5, 5]}
WIDTHS = {
    "mobilenet_v3_small": [16, 96, 240, 240, 120, 144, 288, 576, 576],
    "mobilenet_v3_large": [72, 120, 120, 480, 672, 672, 960, 960],
}


@pytest.mark.parametrize("attention", [None, "eca"])
@pytest.mark.parametrize("name", list(STAGES))
def test_a_named_attention_takes_the_places_of_the_native_gate(name, attention):
    model = zoo.create_model(name, attention=attention)
    places = model.attention_places()
    assert [place.stage for place in places] == STAGES[name]
    assert [place.channels for place in places] == WIDTHS[name]
    kinds = {type(model.get_submodule(place.name)).__name__ for place in places}
    assert kinds == {"HardSqueezeExcitation" if attention is None else "EfficientChannelAttention"}


def test_none_by_name_removes_the_native_gate():
    model = zoo.create_model("mobilenet_v3_small", attention="none")
    assert not any(isinstance(module, HardSqueezeExcitation) for module in model.modules())
    assert model.attention_places() == ()


def test_gate_stands_between_depthwise_and_projection():
    block = zoo.create_model("mobilenet_v3_small", attention="se").eval().features[4]
    order = []
    for name in ("0.2", "1.0", "1.1", "1.2", "attention", "3.0", "3.1"):
        block.block.get_submodule(name).register_forward_hook(lambda *_, name=name: order.append(name))
    block(torch.rand(1, 24, 8, 8))
    assert order == ["0.2", "1.0", "1.1", "1.2", "attention", "3.0", "3.1"]


def test_native_gate_is_a_hard_sigmoid_that_saturates_at_three():
    gate = HardSqueezeExcitation(16)
    torch.nn.init.zeros_(gate.fc2.weight)
    for bias, factor in ((0.0, 0.5), (3.0, 1.0), (-3.0, 0.0), (1.5, 0.75)):
        torch.nn.init.constant_(gate.fc2.bias, bias)
        torch.testing.assert_close(gate(torch.ones(1, 16, 2, 2)), torch.full((1, 16, 2, 2), factor))


@pytest.mark.parametrize(("channels", "hidden"), [(16, 8), (72, 24), (96, 24), (480, 120), (8, 8)])
def test_native_gate_squeezes_to_a_quarter_rounded_to_eight(channels, hidden):
    gate = HardSqueezeExcitation(channels)
    assert gate.fc1.weight.shape == (hidden, channels, 1, 1)
    assert gate.fc2.weight.shape == (channels, hidden, 1, 1)


def test_a_copy_and_our_own_names_load_too():
    torch.manual_seed(0)
    theirs = torchvision.models.mobilenet_v3_small().eval()
    ours = copy.deepcopy(zoo.create_model("mobilenet_v3_small")).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    again = zoo.create_model("mobilenet_v3_small").eval()
    again.load_state_dict(ours.state_dict(), strict=True)
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(again(images), ours(images))
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_torchvisions_gates_are_not_loaded_into_another_mechanism():
    with torch.device("meta"):
        theirs = torchvision.models.mobilenet_v3_small().state_dict()
        report = zoo.create_model("mobilenet_v3_small", attention="se").load_state_dict(theirs, strict=False)
    assert report.missing_keys
    assert all(".attention." in name for name in report.missing_keys)
    assert len(report.unexpected_keys) == 9 * 4
    assert all(".fc" in name for name in report.unexpected_keys)


@pytest.mark.parametrize("name", list(STAGES))
@pytest.mark.parametrize(("stem", "size"), [("cifar", 4), ("imagenet", 1)])
def test_stem_decides_the_size_of_the_last_map(name, stem, size):
    model = zoo.create_model(name, stem=stem, width_multiplier=0.25).eval()
    sizes = []
    model.features.register_forward_hook(lambda _, x, y: sizes.append(tuple(y.shape[2:])))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(size, size)]


def test_stages_without_a_place_are_refused():
    with pytest.raises(ValueError, match="stage 2 has no place for attention; stages with one: 1, 3, 4"):
        zoo.create_model("mobilenet_v3_small", attention="se", attention_stages=[2, 3])


def test_mobilenet_v3_norms_are_slow_and_cushioned_as_in_its_paper():
    model = zoo.create_model("mobilenet_v3_small", width_multiplier=0.25)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(0.001, 0.01)}
