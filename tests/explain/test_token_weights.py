"""Exact weights of every layer although the fast path runs, and tokens of the prefix kept apart from places."""

import pytest
import torch
from torch import nn

import zoo
from zoo.explain.attention_rollout import attention_rollout, last_attention, roll_out
from zoo.explain.token_weights import read_token_attention

OPTIONS = {
    "class token": {},
    "class token and registers": {"num_registers": 4},
    "mean": {"pooling": "mean"},
    "attention pooling": {"pooling": "attention"},
    "registers, mean, rotary": {"pooling": "mean", "num_registers": 2, "positions": "rotary"},
    "relative": {"positions": "relative"},
    "windows": {"pooling": "mean", "attention": "window", "attention_args": {"window_size": [2, 2]}},
    "linear": {"attention": "linear"},
}


def create(**options):
    torch.manual_seed(0)
    sizes = {"embed_dim": 64, "depth": 2, "num_heads": 2, "image_size": (20, 28)}
    return zoo.create_model("vit_tiny_patch4_32", num_classes=3, **sizes, **options).eval()


IMAGES = torch.randn(1, 3, 20, 28, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", OPTIONS)
def test_weights_are_those_of_the_network_and_its_answer_stays(name):
    model = create(**OPTIONS[name])
    with torch.no_grad():
        before = model(IMAGES)
        expected = model.attention_weights(IMAGES)
    attention = read_token_attention(model, IMAGES)
    assert attention.names == ("blocks.0.attention", "blocks.1.attention")
    for read, exact in zip(attention.weights, expected, strict=True):
        assert torch.equal(read, exact[0])
        assert torch.allclose(read.sum(-1), torch.ones(read.shape[:2]), atol=1e-5)
    with torch.no_grad():
        assert torch.equal(model(IMAGES), before)


@pytest.mark.parametrize("name", OPTIONS)
def test_prefix_tokens_are_left_out_and_the_grid_is_not_transposed(name):
    model = create(**OPTIONS[name])
    attention = read_token_attention(model, IMAGES)
    assert attention.layout.grid_size == (5, 7)
    assert attention.layout.num_prefix_tokens == model.num_prefix_tokens
    looked_at = attention.looked_at(1)
    assert looked_at.shape == (2, 5, 7)
    rows = attention.weights[1][:, :, model.num_prefix_tokens :].unflatten(-1, (5, 7))
    if model.pooling == "class_token":
        assert torch.allclose(looked_at, rows[:, 0])
    elif model.pooling == "mean":
        assert torch.allclose(looked_at, rows[:, model.num_prefix_tokens :].mean(1), atol=1e-6)
    assert float(attention.reading.sum()) == pytest.approx(1)


def test_pooling_by_attention_counts_each_token_as_much_as_the_pooling_does():
    model = create(pooling="attention")
    nn.init.normal_(model.pool.query.weight)
    attention = read_token_attention(model, IMAGES)
    with torch.no_grad():
        assert torch.allclose(attention.reading, model.pool.weights(model.encode(IMAGES))[0], atol=1e-6)
    assert attention.reading.max() > 2 / 35


def test_rollout_is_the_product_of_the_layers_with_half_a_skip():
    model = create(num_registers=2)
    attention = read_token_attention(model, IMAGES)
    first, second = (weights.mean(0).double() for weights in attention.weights)
    identity = torch.eye(len(first), dtype=torch.float64)
    joint = (second + identity) / 2 @ ((first + identity) / 2)
    assert torch.allclose(roll_out(attention).double(), joint[0, 3:].unflatten(0, (5, 7)), atol=1e-6)


def test_maps_lie_on_the_pixels_of_their_patches():
    model = create()
    grid = torch.zeros(5, 7)
    grid[1, 5] = 1
    spread = read_token_attention(model, IMAGES).spread(grid)
    assert spread.shape == (20, 28)
    rows, columns = (spread == spread.max()).nonzero(as_tuple=True)
    assert set(rows.tolist()) == {5, 6}
    assert set(columns.tolist()) == {21, 22}


def test_a_network_without_tokens_has_no_such_map():
    model = zoo.create_model("resnet20")
    assert read_token_attention(model, IMAGES) is None
    for method in (last_attention, attention_rollout):
        with pytest.raises(ValueError, match="the model has no attention over tokens"):
            method(model, IMAGES)


def test_a_network_that_does_not_tell_its_places_is_refused():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = zoo.create_token_attention("multi_head", 32, num_heads=1)

        def forward(self, images):
            return self.attention(images.flatten(2).mT).mean(1)

    with pytest.raises(ValueError, match="no part of it tells which of them are places"):
        read_token_attention(Bare(), torch.zeros(1, 32, 4, 4))
