"""The sentences say what was planted."""

import dataclasses
import re

import pytest
import torch
from torch import nn

import zoo
from zoo.explain.gates import read_gates
from zoo.explain.integrated_gradients import Completeness, attribute
from zoo.explain.methods import explain_with, suitable_methods
from zoo.explain.trust.concentration import concentrations
from zoo.explain.trust.conclusions import conclude
from zoo.explain.trust.measurement import measure_trust


def trust_of(model, images):
    heatmaps = {name: explain_with(name, model, images, 1) for name in suitable_methods(model, images)}
    completeness = attribute(model, images, 1)[1]
    divided = concentrations(read_gates(model, images).gates, None)
    return measure_trust(model, images, 1, heatmaps, completeness, divided)


def test_of_a_network_that_looks_at_its_quadrant_every_map_is_said_to_matter(looks_at_region, bright_image):
    trust = trust_of(looks_at_region, bright_image)
    assert all(found.beats(trust.chance) for found in trust.maps.values())
    places, *_ = sentences = conclude(trust)
    assert "The places marked by Spatial gates, Grad-CAM, Occlusion and Integrated gradients matter" in places
    assert any("The attention takes part in this answer" in sentence for sentence in sentences)


def test_attention_without_a_part_in_the_answer_is_said_to_have_none(ignores_its_attention, bright_image):
    trust = trust_of(ignores_its_attention, bright_image)
    assert not trust.maps["spatial_gates"].beats(trust.chance)
    assert trust.maps["integrated_gradients"].beats(trust.chance)
    assert trust.maps["spatial_gates"].agreement < 0
    text = " ".join(conclude(trust))
    assert re.search(r"places marked by [^.]*Spatial gates[^.]* were not shown to matter more than other places", text)
    assert "The attention plays next to no part in this answer" in text
    assert "Pictures of its weights say nothing about the reason." in text


def test_a_map_that_survives_scrambling_and_sums_that_miss_are_said(looks_at_region, bright_image):
    trust = trust_of(looks_at_region, bright_image)
    maps = {"grad_cam": dataclasses.replace(trust.maps["grad_cam"], all_scrambled=0.9)}
    changed = dataclasses.replace(trust, maps=maps, completeness=Completeness(10.0, 8.0))
    text = " ".join(conclude(changed))
    assert "Grad-CAM looks much the same when the weights of the network are scrambled" in text
    assert "miss what they should add up to by 20 %" in text
    assert "miss what" not in " ".join(conclude(trust))


def test_a_network_without_attention_is_said_to_have_none():
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", width_multiplier=0.25, num_classes=3).eval()
    images = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert "This network has no attention" in " ".join(conclude(trust_of(model, images)))


@pytest.mark.parametrize("net", ["looks_at_region", "ignores_its_attention"])
def test_the_sentences_are_for_laymen(net, bright_image, request):
    for sentence in conclude(trust_of(request.getfixturevalue(net), bright_image)):
        assert not re.search(r"[\u2013\u2014;_]|entropy|logit|Spearman|AUC|saliency|gradient(?!s\b)", sentence)
        assert sentence.endswith(".")


def test_trust_needs_the_reference(looks_at_region, bright_image):
    heatmaps = {"grad_cam": explain_with("grad_cam", looks_at_region, bright_image, 1)}
    with pytest.raises(ValueError, match="beside integrated_gradients, which is not among grad_cam"):
        measure_trust(looks_at_region, bright_image, 1, heatmaps, Completeness(1, 1), ())
    assert isinstance(looks_at_region, nn.Module)
