"""Slots for attention: who gets a gate, and from which random numbers."""

import pytest
import torch
from torch import nn

from zoo.layers.attention_slots import AttentionPlace, AttentionSlots


def test_only_the_chosen_stages_get_a_gate_and_are_listed():
    slots = AttentionSlots(lambda channels: nn.Linear(channels, 1), [2])
    assert slots.slot("layer1.attention", 1) is None
    build = slots.slot("layer2.attention", 2)
    assert build(8).in_features == 8
    assert slots.places() == (AttentionPlace("layer2.attention", 2, 8),)


def test_a_gate_draws_nothing_from_the_stream_of_the_backbone():
    def next_number(attention):
        torch.manual_seed(0)
        slots = AttentionSlots(attention)
        build = slots.slot("a.attention", 1)
        if build is not None:
            build(8)
        return torch.rand(1).item()

    assert next_number(None) == next_number(lambda channels: nn.Linear(channels, channels))


def test_a_gate_does_not_draw_the_numbers_that_the_backbone_draws_next():
    torch.manual_seed(0)
    build = AttentionSlots(lambda channels: nn.Linear(channels, channels)).slot("a.attention", 1)
    assert not torch.equal(build(8).weight, nn.Linear(8, 8).weight)


def test_gates_differ_from_each_other_and_follow_the_seed():
    def weights(seed):
        torch.manual_seed(seed)
        slots = AttentionSlots(lambda channels: nn.Linear(channels, channels))
        return [slots.slot(f"{index}.attention", 1)(4).weight for index in range(2)]

    first, second = weights(0)
    assert not torch.equal(first, second)
    assert torch.equal(first, weights(0)[0])
    assert not torch.equal(first, weights(1)[0])


def test_stages_without_attention_are_refused():
    with pytest.raises(ValueError, match=r"attention_stages \(\[1\]\) has no effect without an attention"):
        AttentionSlots(None, [1])
