import torch

from zoo.layers.sequence_pooling import SequencePooling


def test_it_is_the_weighted_mean_that_the_query_asks_for() -> None:
    torch.manual_seed(0)
    pool, tokens = SequencePooling(4), torch.randn(2, 5, 4)
    scores = tokens @ pool.query.weight[0]
    weights = scores.exp() / scores.exp().sum(1, keepdim=True)
    torch.testing.assert_close(pool.weights(tokens), weights)
    torch.testing.assert_close(pool(tokens), (weights[..., None] * tokens).sum(1))


def test_the_order_of_the_tokens_does_not_matter_and_equal_tokens_count_equally() -> None:
    torch.manual_seed(0)
    pool, tokens = SequencePooling(4), torch.randn(2, 5, 4)
    torch.testing.assert_close(pool(tokens.flip(1)), pool(tokens))
    torch.testing.assert_close(pool.weights(torch.ones(1, 8, 4)), torch.full((1, 8), 1 / 8))


def test_weights_are_taken_in_float32_and_the_dtype_is_kept() -> None:
    pool, tokens = SequencePooling(4).bfloat16(), torch.randn(2, 500, 4, dtype=torch.bfloat16)
    assert pool.weights(tokens).dtype == torch.float32
    torch.testing.assert_close(pool.weights(tokens).sum(1), torch.ones(2))
    assert pool(tokens).dtype == torch.bfloat16
