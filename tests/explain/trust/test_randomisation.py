import pytest
import torch
from torch import nn

import zoo
from zoo.explain.heatmap import Heatmap
from zoo.explain.methods import METHODS
from zoo.explain.trust.randomisation import randomisation_agreement, scrambled


def test_weights_change_places_within_their_tensors_and_nothing_else():
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", attention="se", width_multiplier=0.25)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for extent in ("last", "all"):
        changed = scrambled(model, extent, seed=0).state_dict()
        moved = {name for name, tensor in changed.items() if not torch.equal(tensor, before[name])}
        for name in moved:
            assert torch.equal(changed[name].flatten().sort().values, before[name].flatten().sort().values)
        assert moved == ({"fc.weight"} if extent == "last" else {n for n, t in model.named_parameters() if t.dim() > 1})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_map_of_the_image_alone_agrees_fully_and_a_map_of_the_network_does_not(
    monkeypatch, looks_at_region, bright_image
):
    def brightness(model, images, class_index):
        return Heatmap("brightness", "Brightness", images[0].sum(0))

    def weights(model, images, class_index):
        return Heatmap("weights", "Weights", model[1].weight[class_index].detach().view(6, 6), is_signed=True)

    monkeypatch.setitem(METHODS, "brightness", brightness)
    monkeypatch.setitem(METHODS, "weights", weights)
    heatmap = brightness(None, bright_image, 1)
    assert randomisation_agreement(looks_at_region, bright_image, 1, heatmap, "all", seed=0) == pytest.approx(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    images = torch.zeros(1, 1, 6, 6)
    for extent in ("last", "all"):
        agreement = randomisation_agreement(model, images, 1, weights(model, images, 1), extent, seed=0)
        assert abs(agreement) < 0.4
