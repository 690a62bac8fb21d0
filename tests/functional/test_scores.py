import math

import pytest
import torch

from zoo.functional import additive_scores, cosine_scores, dot_scores, scaled_dot_scores

QUERY = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
KEY = torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, 0.0]])


def test_dot_is_the_sum_of_products() -> None:
    assert dot_scores(QUERY, KEY).tolist() == [[11.0, 5.0, 0.0], [-4.0, 0.0, 0.0]]


def test_scaled_dot_divides_by_the_root_of_the_width_or_takes_the_scale_given() -> None:
    torch.testing.assert_close(scaled_dot_scores(QUERY, KEY), dot_scores(QUERY, KEY) / math.sqrt(2))
    torch.testing.assert_close(scaled_dot_scores(QUERY, KEY, scale=0.5), dot_scores(QUERY, KEY) / 2)


def test_additive_is_v_times_tanh_of_the_sum() -> None:
    weight = torch.tensor([2.0, -1.0])
    expected = [[2 * math.tanh(q0 + k0) - math.tanh(q1 + k1) for k0, k1 in KEY.tolist()] for q0, q1 in QUERY.tolist()]
    torch.testing.assert_close(additive_scores(QUERY, KEY, weight), torch.tensor(expected))


def test_additive_takes_a_vector_per_head() -> None:
    query, key = QUERY.expand(3, 2, 2, 2), KEY.expand(3, 2, 3, 2)
    scores = additive_scores(query, key, torch.tensor([[2.0, -1.0], [0.0, 4.0]]))
    torch.testing.assert_close(scores[:, 0], additive_scores(query[:, 0], key[:, 0], torch.tensor([2.0, -1.0])))
    torch.testing.assert_close(scores[:, 1], additive_scores(query[:, 0], key[:, 0], torch.tensor([0.0, 4.0])))


def test_cosine_ignores_lengths_and_a_zero_vector_scores_zero() -> None:
    expected = [[11 / (5**0.5 * 5), 1 / 5**0.5, 0.0], [-4 / 5, 0.0, 0.0]]
    torch.testing.assert_close(cosine_scores(QUERY, KEY), torch.tensor(expected))
    torch.testing.assert_close(cosine_scores(9 * QUERY, 0.1 * KEY, scale=3.0), 3 * torch.tensor(expected))


@pytest.mark.parametrize("score", [dot_scores, scaled_dot_scores, cosine_scores])
def test_batch_and_heads_are_kept(score) -> None:
    query, key = QUERY.expand(4, 3, 2, 2), KEY.expand(4, 3, 3, 2)
    torch.testing.assert_close(score(query, key), score(QUERY, KEY).expand(4, 3, 2, 3))
