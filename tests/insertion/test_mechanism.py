"""Mechanisms: options are checked, the identity is proven on the gate itself, costs are counted as elsewhere."""

import pytest
import torch
from torch import nn

import zoo
from zoo.evaluation.complexity import describe_model
from zoo.insertion.mechanism import Mechanism, count_gate_macs


@pytest.mark.parametrize(
    ("attention", "args", "message"),
    [
        ("cbma", None, r"unknown attention 'cbma'\. Did you mean 'cbam'\?"),
        ("se", {"reduction": 8}, r"unknown option 'reduction' of attention 'se'\. Did you mean 'reduction_ratio'\?"),
        ("se", {"channels": 8}, "unknown option 'channels' of attention 'se'"),
        ("se", {"identity_start": False}, "identity_start is an argument of insert_attention itself"),
        (3, None, r"attention \(3\) must be a name or a function from a width to a module"),
        ("se", {"reduction_ratio": 0}, r"reduction_ratio \(0\) must be an integer of at least 1"),
    ],
)
def test_mistakes(resnet, attention, args, message):
    with pytest.raises(ValueError, match=message):
        zoo.insert_attention(resnet, attention, attention_args=args)


class Halves(nn.Module):
    """A gate that knows no start at the identity."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.5))

    def forward(self, feature_map):
        return feature_map * self.scale


class PromisesTooMuch(Halves):
    def __init__(self, channels, *, identity_start=False):
        super().__init__(channels)


class ByChance(nn.Module):
    """A gate without the option that changes nothing when it is new."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, feature_map):
        return feature_map * self.scale


class Pools(nn.Module):
    def __init__(self, channels):
        super().__init__()

    def forward(self, feature_map):
        return feature_map.mean((2, 3), keepdim=True)


def test_a_mechanism_that_cannot_start_at_the_identity_is_refused_unless_that_is_accepted(resnet, images):
    with pytest.raises(
        ValueError, match=r"'Halves' has no option identity_start and changes its input .* identity_start"
    ):
        zoo.insert_attention(resnet, Halves)
    with pytest.raises(
        ValueError, match="'PromisesTooMuch' does not start at the identity although its identity_start"
    ):
        zoo.insert_attention(resnet, PromisesTooMuch)
    expected = resnet(images)
    report = zoo.insert_attention(resnet, Halves, identity_start=False)
    assert report.identity_start is False
    assert not torch.equal(resnet(images), expected)


def test_a_mechanism_that_is_the_identity_by_itself_is_accepted(resnet, images):
    expected = resnet(images)
    zoo.insert_attention(resnet, ByChance)
    assert torch.equal(resnet(images), expected)


def test_a_mechanism_that_does_not_keep_the_shape_is_refused(resnet):
    with pytest.raises(ValueError, match=r"'Pools' turns a map of \(2, 8, 5, 5\) into \(2, 8, 1, 1\)"):
        zoo.insert_attention(resnet, Pools, identity_start=False)


def test_options_reach_the_gates(resnet):
    zoo.insert_attention(resnet, "se", attention_args={"reduction_ratio": 2})
    assert resnet.layer4[0].bn2.attention.mlp.hidden_channels == 16
    assert Mechanism("se", {"reduction_ratio": 2}, identity_start=True).resolved_args == {
        "reduction_ratio": 2, "min_hidden_channels": 1, "identity_start": True,
    }  # fmt: skip


@pytest.mark.parametrize("attention", zoo.list_attention())
def test_costs_are_those_that_the_description_of_a_model_counts(resnet, attention):
    report = zoo.insert_attention(resnet, attention, example_input=torch.randn(1, 3, 64, 64))
    described = {gate.name: (gate.macs, gate.parameters) for gate in describe_model(resnet, (3, 64, 64)).gates}
    assert {gate.name: (gate.macs, gate.parameters) for gate in report.gates} == described
    assert report.added_macs == sum(macs for macs, _ in described.values()) > 0


def test_macs_of_squeeze_and_excitation_by_arithmetic():
    gate = zoo.create_attention("se", 64, reduction_ratio=16)
    assert count_gate_macs(gate, 64, 56, 56) == 2 * 64 * 4
    assert count_gate_macs(zoo.create_attention("sam", 64), 64, 10, 7) == 2 * 49 * 70
