"""The cost in time: turns, ratios within a round, and a network left alone."""

import pytest
import torch

import zoo
from zoo.insertion import latency


def test_passes_take_turns_and_ratios_pair_neighbours(resnet, monkeypatch):
    zoo.insert_attention(resnet, "se")
    order = []

    def time_pass(model, example):
        is_gated = model is resnet
        order.append("G" if is_gated else "P")
        slowdown = 1 + len(order)  # a machine that gets slower all the time
        return (3.0 if is_gated else 1.0) * slowdown

    monkeypatch.setattr(latency, "_time_pass", time_pass)
    measured = latency.measure_latency_ratio(resnet, rounds=4)
    assert "".join(order) == "PGGP" * 3
    assert measured.lowest_ratio < 3.0 < measured.highest_ratio
    assert measured.ratio == pytest.approx(3.0, rel=0.1)


def test_the_plain_copy_has_no_gates_and_the_network_keeps_its_modes(resnet, monkeypatch):
    zoo.insert_attention(resnet, "cbam", identity_start=False)
    resnet.train()
    seen = []
    monkeypatch.setattr(latency, "_time_pass", lambda model, example: seen.append((model, model(*example))) or 1.0)
    latency.measure_latency_ratio(resnet, torch.randn(1, 3, 64, 64), rounds=3)
    (plain,) = {model for model, _ in seen if model is not resnet}
    assert not any(name.endswith(".attention") for name, _ in plain.named_modules())
    outputs = {model is resnet: output for model, output in seen}
    assert not torch.equal(outputs[True], outputs[False])
    assert resnet.layer1[0].bn2.attention.training
    assert resnet.bn1.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 2}, r"rounds \(2\) must be at least 3"),
        ({"rounds": 3.0}, r"rounds \(3.0\) must be an integer of at least 1"),
    ],
)
def test_mistakes(resnet, options, message):
    zoo.insert_attention(resnet, "se")
    with pytest.raises(ValueError, match=message):
        latency.measure_latency_ratio(resnet, **options)


def test_without_gates_there_is_nothing_to_measure(resnet):
    with pytest.raises(ValueError, match="no inserted attention whose cost"):
        latency.measure_latency_ratio(resnet)
