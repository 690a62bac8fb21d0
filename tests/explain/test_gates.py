"""Factors of gates are those that the network used, for any mechanism that only multiplies."""

import pytest
import torch
import torchvision
from torch import nn

import zoo
from zoo.explain.gates import find_gate_modules, read_gates

IMAGES = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def create(name, **options):
    torch.manual_seed(0)
    return zoo.create_model(name, num_classes=3, stem="cifar", width_multiplier=0.25, **options).eval()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("attention", zoo.list_attention())
def test_the_product_of_factors_gives_what_the_network_went_on_with(attention, memory_format):
    model = create("resnet20", attention=attention).to(memory_format=memory_format)
    images = IMAGES.contiguous(memory_format=memory_format)
    reading = read_gates(model, images)
    assert reading.unread == ()
    seen = {}
    for name, (module, _) in find_gate_modules(model).items():
        module.register_forward_hook(lambda _, given, output, name=name: seen.update({name: (given[0], output)}))
    with torch.no_grad():
        model(images)
    assert len(seen) == 9
    for name, (given, output) in seen.items():
        product = given
        for gate in (gate for gate in reading.gates if gate.name == name):
            product = product * (gate.values[:, None, None] if gate.kind == "channel" else gate.values)
        assert torch.allclose(product, output, rtol=1e-4, atol=1e-5)


def test_factors_of_squeeze_and_excitation_are_its_formula():
    gate = zoo.create_attention("se", 8, reduction_ratio=2).eval()
    feature_map = torch.randn(1, 8, 5, 7, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Identity(), gate)
    (read,) = read_gates(model, feature_map).gates
    first, second = (layer for layer in gate.mlp.modules() if isinstance(layer, nn.Linear | nn.Conv2d))
    hidden = torch.relu(first.weight.flatten(1) @ feature_map.mean((2, 3))[0] + first.bias)
    expected = torch.sigmoid(second.weight.flatten(1) @ hidden + second.bias)
    assert torch.allclose(read.values, expected, atol=1e-6)
    assert read.kind == "channel"


def test_the_networks_say_their_stages_and_mobilenet_v3_has_its_own_gates():
    reading = read_gates(create("resnet20", attention="cbam"), IMAGES)
    assert [gate.stage for gate in reading.gates] == [1] * 6 + [2] * 6 + [3] * 6
    assert [tuple(gate.values.shape) for gate in reading.gates[-2:]] == [(16,), (8, 8)]
    model = create("mobilenet_v3_small")
    gates = read_gates(model, IMAGES).gates
    assert [gate.stage for gate in gates] == [place.stage for place in model.attention_places()]
    assert all(0 <= float(gate.values.min()) <= float(gate.values.max()) <= 1 for gate in gates)


def test_gates_inserted_into_a_foreign_network_are_read_with_stages_by_resolution():
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3).eval()
    zoo.insert_attention(model, "cbam", example_input=torch.randn(1, 3, 64, 96))
    reading = read_gates(model, torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0)))
    assert reading.unread == ()
    assert [gate.stage for gate in reading.gates] == [stage for stage in (1, 2, 3, 4) for _ in range(4)]
    assert all(torch.equal(gate.values, torch.ones_like(gate.values)) for gate in reading.gates)
    assert reading.gates[-1].values.shape == (2, 3)
    assert reading.gates[0].mean_distance == 0


def test_a_gate_that_does_more_than_multiply_is_named_and_not_shown():
    class SEModule(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.ones(3, 1, 1))

        def forward(self, feature_map):
            return feature_map * torch.sigmoid(feature_map.mean((2, 3), keepdim=True)) + self.bias

    reading = read_gates(nn.Sequential(nn.Conv2d(3, 3, 1), SEModule()), IMAGES)
    assert reading.gates == ()
    assert reading.unread == ("1",)


def test_a_gate_that_runs_twice_is_read_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = zoo.create_attention("sam", 3)

        def forward(self, images):
            return self.attention(self.attention(images))

    first, second = read_gates(Twice().eval(), IMAGES).gates
    assert (first.name, second.name) == ("attention", "attention #2")
    assert not torch.equal(first.values, second.values)


def test_a_map_of_one_channel_or_one_place_is_told_apart():
    channel, position = (zoo.create_attention(name, 1).eval() for name in ("cbam_channel", "sam"))
    images = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    gates = read_gates(nn.Sequential(channel, position), images).gates
    assert [(gate.kind, tuple(gate.values.shape)) for gate in gates] == [("channel", (1,)), ("position", (4, 4))]


def test_the_farthest_channels_are_those_unlike_the_others():
    (gate,) = read_gates(nn.Sequential(zoo.create_attention("se", 3).eval()), IMAGES).gates
    object.__setattr__(gate, "values", torch.tensor([0.5, 0.9, 0.4, 0.5]))
    assert gate.farthest(2) == [1, 2]
    assert gate.mean_distance == pytest.approx((0.5 + 0.1 + 0.6 + 0.5) / 4)
