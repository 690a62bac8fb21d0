"""Attention pooling: one vector of many tokens, weighted by a learned query."""

from torch import Tensor, nn

from zoo.functional.softmax import softmax_dtype
from zoo.functional.validation import check_positive_int


class SequencePooling(nn.Module):
    """``sum_i a_i x_i`` with ``a = softmax_i(w x_i)``: the attention of one learned query to all tokens.

    The softmax is taken in float32, in float64 for float64. The authors' code adds a bias to the scores, which the
    softmax cancels.

    Args:
        embed_dim: Width of the tokens, at least 1.

    Shape:
        (batch, tokens, embed_dim) -> (batch, embed_dim)

    Raises:
        ValueError: ``embed_dim`` is no integer of at least 1.

    >>> import torch
    >>> SequencePooling(8)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 8])

    Source:
        Hassani et al.: Escaping the Big Data Paradigm with Compact Transformers, 2021,
        https://arxiv.org/abs/2104.05704, section 3.2
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(check_positive_int("embed_dim", embed_dim), 1, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return one vector per sequence."""
        weights = self.weights(tokens).to(tokens.dtype)
        return (weights.unsqueeze(1) @ tokens).squeeze(1)

    def weights(self, tokens: Tensor) -> Tensor:
        """Return how much each token counts, (batch, tokens), at least in float32; each row sums to 1."""
        scores = self.query(tokens).squeeze(-1)
        return scores.softmax(-1, dtype=softmax_dtype(scores.dtype))
