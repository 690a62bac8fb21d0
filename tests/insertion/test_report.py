"""The report: every place, its cost, its sums, as text and as plain values."""

import dataclasses
import json

import pytest
import torch

import zoo


@pytest.fixture
def report(resnet):
    return zoo.insert_attention(resnet, "se", stages=[1, 4], attention_args={"reduction_ratio": 4})


def test_report_holds_place_width_parameters_and_macs(report):
    first, last = report.gates
    assert (first.name, first.place) == ("layer1.0.bn2.attention", "output of layer1.0.bn2")
    assert (first.stage, first.channels, first.height, first.width) == (1, 8, 56, 56)
    assert (first.parameters, first.macs) == (2 * 8 * 2 + 8 + 2, 2 * 8 * 2)
    assert (last.stage, last.channels, last.height, last.width) == (4, 32, 7, 7)
    assert report.added_parameters == first.parameters + last.parameters
    assert report.added_macs == first.macs + last.macs
    assert report.input_shapes == ((1, 3, 224, 224),)


def test_report_prints_a_table(report):
    text = str(report)
    assert text.startswith("se at 2 places (identity start), traced on (1, 3, 224, 224)\n")
    assert "layer4.0.bn2.attention      4   32 x 7 x 7" in text
    assert f"+ {report.added_parameters:,}" in text
    assert "largest difference to before: 0\n" in text
    assert "not measured; report.with_latency(model) measures it" in text


def test_report_is_plain_values(report):
    values = report.to_dict()
    assert json.loads(json.dumps(values))["gates"][1]["channels"] == 32
    assert values["added_parameters"] == report.added_parameters


def test_plain_parameters_are_those_before(report, resnet):
    total = sum(parameter.numel() for parameter in resnet.parameters())
    assert report.plain_parameters + report.added_parameters == total


def test_latency_is_measured_when_asked_and_printed(report, resnet):
    timed = report.with_latency(resnet, torch.randn(1, 3, 32, 32), rounds=3)
    assert timed.latency.rounds == 3
    assert "x the plain network (" in str(timed)
    assert timed.to_dict()["latency"]["ratio"] == timed.latency.ratio
    assert report.latency is None


def test_latency_is_measured_on_images_of_the_traced_size(resnet, monkeypatch):
    shapes = []
    report = zoo.insert_attention(resnet, "se", example_input=torch.randn(2, 3, 32, 40))
    monkeypatch.setattr(
        "zoo.insertion.latency._time_pass", lambda model, example: shapes.append(example[0].shape) or 1.0
    )
    report.with_latency(resnet, rounds=3)
    report.with_latency(resnet, rounds=3, batch_size=5)
    assert set(shapes) == {(2, 3, 32, 40), (5, 3, 32, 40)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"example_input": torch.zeros(1, 3, 32, 32), "batch_size": 2}, r"batch_size \(2\) has no effect beside"),
        ({"batch_size": 0}, r"batch_size \(0\) must be an integer of at least 1"),
    ],
)
def test_latency_refuses_options_without_an_effect(report, resnet, options, message):
    with pytest.raises(ValueError, match=message):
        report.with_latency(resnet, **options)


def test_latency_of_what_was_not_traced_on_images_needs_an_example(report, resnet):
    listed = dataclasses.replace(report, input_shapes=((3, 32, 32),))
    with pytest.raises(ValueError, match="was no batch of images; pass example_input"):
        listed.with_latency(resnet)
