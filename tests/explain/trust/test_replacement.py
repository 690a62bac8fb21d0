"""Attention that is provably irrelevant moves nothing when it is replaced, and attention that decides moves much."""

import pytest
import torch

import zoo
from zoo.attention.token.window import WindowAttention
from zoo.explain.gradients import predict
from zoo.explain.token_weights import read_token_attention
from zoo.explain.trust.replacement import measure_replacements, replaced_attention


def seeded():
    return torch.Generator().manual_seed(0)


def test_attention_that_the_answer_does_not_use_moves_exactly_nothing(ignores_its_attention, bright_image):
    for found in measure_replacements(ignores_its_attention, bright_image, 1, seed=0):
        assert found.moved == 0
        assert found.changes_answer == 0
        assert found.after == pytest.approx(found.before)


def test_a_gate_that_decides_moves_the_answer_in_the_planted_direction(looks_at_region, bright_image):
    uniform, permuted = measure_replacements(looks_at_region, bright_image, 1, seed=0)
    assert (uniform.how, permuted.how) == ("uniform", "permuted")
    # The open quarter becomes a mean of a quarter: the brightness that class 1 is falls to about a quarter.
    logit = predict(looks_at_region, bright_image)[0, 1]
    expected = torch.sigmoid(logit / 4 * (0.25 * 0.9975 + 0.75 * 0.0025) * 4 / 0.9975)
    assert uniform.after == pytest.approx(float(expected), abs=0.01)
    assert uniform.moved == pytest.approx(uniform.before - uniform.after, abs=1e-6)
    assert permuted.moved > 0.01


def test_a_transformer_whose_weights_decide_sees_the_mean_of_all_patches(make_looks_at_patches):
    model = make_looks_at_patches((4, 4), [(2, 0)], 0)
    images = torch.zeros(1, 3, 16, 16)
    images[:, :, 8:12, :4] = 1
    with replaced_attention(model, "uniform", seeded()):
        assert float(predict(model, images)[0, 1]) == pytest.approx(8 / 16, rel=1e-5)
    assert float(predict(model, images)[0, 1]) == pytest.approx(8, rel=1e-3)
    uniform, permuted = measure_replacements(model, images, 1, seed=0)
    assert uniform.moved > 0.3
    assert permuted.moved > 0.1


def test_even_weights_stay_as_they_are():
    torch.manual_seed(0)
    model = zoo.create_model("resnet20", width_multiplier=0.25).eval()
    zoo.insert_attention(model, "cbam")  # every factor is 1
    images = torch.randn(1, 3, 32, 32, generator=seeded())
    for found in measure_replacements(model, images, 0, seed=0):
        assert found.moved == pytest.approx(0, abs=1e-6)


def test_tokens_that_may_not_be_seen_stay_unseen():
    attention = WindowAttention(32, num_heads=1, window_size=4).eval()
    tokens = torch.randn(1, 8, 32, generator=seeded())
    for how in ("uniform", "permuted"):
        changed = tokens.clone()
        changed[:, 4:] = 9
        with replaced_attention(attention, how, seeded()), torch.no_grad():
            before = attention(tokens)
        with replaced_attention(attention, how, seeded()), torch.no_grad():
            after = attention(changed)
        assert torch.allclose(before[:, :4], after[:, :4], atol=1e-6)
        assert not torch.allclose(before[:, :4], attention(tokens)[:, :4], atol=1e-4)


def test_shuffled_weights_are_the_same_weights(make_looks_at_patches):
    from zoo.explain.trust.replacement import _replace_weights

    weights = read_token_attention(make_looks_at_patches((4, 4), [(1, 1)]), torch.rand(1, 3, 16, 16)).weights[0][None]
    shuffled = _replace_weights(weights, "permuted", seeded())
    assert torch.equal(shuffled.sort(-1).values, weights.sort(-1).values)
    assert not torch.equal(shuffled, weights)


def test_the_network_has_its_attention_back_afterwards_and_one_without_has_nothing_to_replace(looks_at_region):
    images = torch.rand(1, 3, 16, 16, generator=seeded())
    before = predict(looks_at_region, images)
    measure_replacements(looks_at_region, images, 1, seed=0)
    assert torch.equal(predict(looks_at_region, images), before)
    assert measure_replacements(zoo.create_model("resnet20"), torch.rand(1, 3, 32, 32), 0, seed=0) == ()
