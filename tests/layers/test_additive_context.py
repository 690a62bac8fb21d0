"""Additive attention of a state to a context, against the formula written out."""

import pytest
import torch

from zoo.layers.additive_context import AdditiveContext


def test_it_is_the_weighted_mean_of_the_formula():
    torch.manual_seed(0)
    module = AdditiveContext(3, 4, attention_dim=5).double()
    state, context = torch.randn(2, 3).double(), torch.randn(2, 6, 4).double()
    scores = torch.tanh((state @ module.query.weight.T)[:, None] + context @ module.key.weight.T + module.key.bias)
    weights = (scores @ module.score[0]).softmax(1)
    keys = module.project(context)
    torch.testing.assert_close(module(state, keys, context), (weights[:, :, None] * context).sum(1))
    torch.testing.assert_close(module.attention_weights(state, keys), weights)


def test_a_context_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"context has shape \(2, 6, 3\)"):
        AdditiveContext(3, 4, attention_dim=5).project(torch.zeros(2, 6, 3))
