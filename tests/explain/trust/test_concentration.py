import pytest
import torch

import zoo
from zoo.explain.gates import read_gates
from zoo.explain.token_weights import read_token_attention
from zoo.explain.trust.concentration import concentrations, measure_concentration


def test_even_weights_have_entropy_one_and_a_single_weight_zero():
    assert measure_concentration("x", torch.full((2, 8), 3.0)) == ("x", pytest.approx(1), 0.125, 8)
    assert measure_concentration("x", torch.tensor([0.0, 5.0, 0.0])) == ("x", 0.0, 1.0, 3)
    assert measure_concentration("x", torch.tensor([2.0]))[1:] == (0.0, 1.0, 1)


def test_rows_are_averaged():
    rows = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert measure_concentration("x", rows)[1:3] == (pytest.approx(0.5), pytest.approx(0.75))


def test_gates_and_layers_are_named(make_looks_at_patches):
    images = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    gated = zoo.create_model("resnet20", attention="cbam", width_multiplier=0.25).eval()
    names = [found.name for found in concentrations(read_gates(gated, images).gates, None)]
    assert names[:2] == ["layer1.0.attention (channels)", "layer1.0.attention (positions)"]
    attention = read_token_attention(make_looks_at_patches((4, 4), [(1, 1)]), images)
    (found,) = concentrations((), attention)
    assert found.name == "attention (tokens)"
    assert found.largest > 0.99
    assert found.num_weights == 17
