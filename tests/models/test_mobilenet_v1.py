"""MobileNetV1: published sizes, resolution, places of the gates."""

import pytest
import torch

import zoo
from zoo.evaluation.complexity import count_macs, count_parameters


@pytest.mark.parametrize(
    ("width_multiplier", "million_parameters", "million_macs"),
    [(1.0, 4.2, 569), (0.75, 2.6, 325), (0.5, 1.3, 149), (0.25, 0.5, 41)],
)
def test_sizes_are_those_of_the_papers_table_6(width_multiplier, million_parameters, million_macs):
    with torch.device("meta"):
        model = zoo.create_model("mobilenet_v1", width_multiplier=width_multiplier)
    assert round(count_parameters(model) / 1e6, 1) == million_parameters
    assert round(count_macs(model, (3, 224, 224)) / 1e6) == million_macs


@pytest.mark.parametrize(("stem", "size"), [("cifar", 4), ("imagenet", 1)])
def test_stem_decides_the_size_of_the_last_map(stem, size):
    model = zoo.create_model("mobilenet_v1", stem=stem, width_multiplier=0.25).eval()
    shapes = []
    model.features.register_forward_hook(lambda _, x, y: shapes.append(tuple(y.shape)))
    model(torch.zeros(1, 3, 32, 32))
    assert shapes == [(1, 256, size, size)]


def test_gate_follows_the_pointwise_convolution_its_norm_and_activation():
    model = zoo.create_model("mobilenet_v1", attention="se", width_multiplier=0.25).eval()
    block, order = model.features[2], {}
    for name in ("depthwise.0", "depthwise.1", "depthwise.2", "pointwise.0", "pointwise.1", "pointwise.2", "attention"):
        block.get_submodule(name).register_forward_hook(lambda _, x, y, name=name: order.update({name: (x[0], y)}))
    block.register_forward_hook(lambda _, x, y: order.update(block=(x[0], y)))
    with torch.no_grad():
        model(torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    steps = ["depthwise.0", "depthwise.1", "depthwise.2", "pointwise.0", "pointwise.1", "pointwise.2", "attention"]
    assert list(order) == [*steps, "block"]
    assert order["attention"][0] is order["pointwise.2"][1]
    assert order["block"][1] is order["attention"][1]


def test_gates_are_as_wide_as_the_blocks_outputs_in_five_stages():
    with torch.device("meta"):
        places = zoo.create_model("mobilenet_v1", attention="se").attention_places()
    widths = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
    assert [place.channels for place in places] == widths
    assert [place.stage for place in places] == [1, 2, 2, 3, 3, *[4] * 6, 5, 5]
    assert places[-1].name == "features.13.attention"
