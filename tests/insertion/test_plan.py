"""Stages, published places, and slots that are looked into without a trace."""

import pytest
import torch

import zoo
from zoo.insertion.plan import make_plan


def test_stages_are_counted_by_resolution_where_no_name_tells_them(trained):
    torchvision = pytest.importorskip("torchvision")
    model = trained(torchvision.models.mobilenet_v2(weights=None, num_classes=5, width_mult=0.25))
    plan = make_plan(model, "branches", [1, 5], (torch.randn(1, 3, 64, 64),), replace=False)
    # The blocks at half the image's resolution, and those at a thirty-second.
    assert [(gate.place.target, gate.place.stage) for gate in plan.gates] == [
        ("features.1.conv.0", 1),
        ("features.14.conv.1", 5),
        ("features.15.conv.1", 5),
        ("features.16.conv.1", 5),
        ("features.17.conv.1", 5),
    ]
    assert {tuple(gate.sight.value.shape[2:]) for gate in plan.gates if gate.place.stage == 5} == {(2, 2)}


def test_slots_are_empty_again_after_a_look():
    model = zoo.create_model("mobilenet_v2", stem="cifar", width_multiplier=0.25)
    names = [name for name, _ in model.named_modules()]
    plan = make_plan(model, "branches", [2], (torch.randn(1, 3, 32, 32),), replace=False)
    assert [name for name, _ in model.named_modules()] == names
    assert [gate.place.target for gate in plan.gates] == ["features.2.conv.attention", "features.3.conv.attention"]
    assert [slot.channels for slot in plan.slots][:2] == [8, 48]


def test_where_a_family_publishes_gates_in_some_blocks_these_are_the_places(trained):
    timm = pytest.importorskip("timm")
    model = trained(timm.create_model("mobilenetv3_small_050"))
    plan = make_plan(model, "branches", None, (torch.randn(1, 3, 64, 64),), replace=True)
    with_gate = [name for name, module in model.named_modules() if type(module).__name__ == "SqueezeExcite"]
    assert [gate.present for gate in plan.gates] == with_gate
    with pytest.raises(ValueError, match="stage 2 has no place for a gate; stages with one: 1, 3, 4"):
        make_plan(model, "branches", [2], (torch.randn(1, 3, 64, 64),), replace=True)
