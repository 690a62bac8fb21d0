"""Where a gate goes, by name, glob, pattern and predicate."""

import re

import pytest
from torch import nn

import zoo
from zoo.insertion.placement import find_places, select_modules


def blocks_and_norms(numbers, norms):
    return [f"layer{number}.0.{norm}" for number in numbers for norm in norms]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("layer1.0.bn2", ["layer1.0.bn2"]),
        ("layer[34].*.bn?", blocks_and_norms([3, 4], ["bn1", "bn2"])),
        ("layer3.*", ["layer3.0"]),
        ("layer3.*.bn2", ["layer3.0.bn2"]),
        ("**.bn2", blocks_and_norms([1, 2, 3, 4], ["bn2"])),
        (re.compile(r"layer\d\.0\.bn2"), blocks_and_norms([1, 2, 3, 4], ["bn2"])),
        (["layer4.0", re.compile("layer1")], ["layer1", "layer4.0"]),
        (lambda name, module: isinstance(module, nn.BatchNorm2d) and name.endswith("bn2"),
         blocks_and_norms([1, 2, 3, 4], ["bn2"])),
    ],
)  # fmt: skip
def test_modules_are_selected_in_the_order_of_the_network(resnet, where, expected):
    assert select_modules(resnet, where) == expected


def test_a_pattern_must_match_the_whole_name(resnet):
    with pytest.raises(ValueError, match="matches no module"):
        select_modules(resnet, re.compile("bn2"))


def test_places_by_name_are_outputs_without_a_stage(resnet):
    (place,) = find_places(resnet, "layer2")
    assert (place.target, place.side, place.family, place.stage) == ("layer2", "output", None, None)


def test_a_whole_stage_can_be_gated_by_its_name(resnet, images):
    expected = resnet(images)
    report = zoo.insert_attention(resnet, "se", where="layer?")
    assert [gate.name for gate in report.gates] == [f"layer{number}.attention" for number in (1, 2, 3, 4)]
    assert [gate.channels for gate in report.gates] == [8, 16, 24, 32]
    assert [gate.stage for gate in report.gates] == [None] * 4
    assert (resnet(images) == expected).all()


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small"])
def test_networks_of_the_zoo_tell_their_own_places_and_stages(name):
    gated = zoo.create_model(name, attention="se", stem="cifar", width_multiplier=0.25)
    plain = zoo.create_model(name, attention="none", stem="cifar", width_multiplier=0.25)
    places = find_places(plain, "branches")
    assert [(place.target, place.stage) for place in places] == [
        (place.name, place.stage) for place in gated.attention_places()
    ]
    assert all(place.is_slot for place in places)


def test_a_network_of_the_zoo_within_another_module_is_found():
    holder = nn.ModuleDict({"trunk": zoo.create_model("resnet20", width_multiplier=0.25)})
    assert find_places(holder, "branches")[0].target == "trunk.layer1.0.attention"
