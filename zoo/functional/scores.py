"""Score functions: how well each key answers each query, before the softmax."""

import math

import torch
from torch import Tensor
from torch.nn import functional


def dot_scores(query: Tensor, key: Tensor) -> Tensor:
    """Return ``q_i . k_j``.

    Shape:
        (..., query_tokens, head_dim), (..., key_tokens, head_dim) -> (..., query_tokens, key_tokens)

    >>> dot_scores(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0], [1.0, 1.0]])).tolist()
    [[3.0, 3.0]]
    """
    return query @ key.mT


def scaled_dot_scores(query: Tensor, key: Tensor, *, scale: float | None = None) -> Tensor:
    """Return ``scale * q_i . k_j``.

    Args:
        query: (..., query_tokens, head_dim)
        key: (..., key_tokens, head_dim)
        scale: ``None`` for ``1 / sqrt(head_dim)``, which gives unit variance for entries of unit variance.

    Returns:
        (..., query_tokens, key_tokens)

    >>> scaled_dot_scores(torch.ones(1, 4), torch.ones(2, 4)).tolist()
    [[2.0, 2.0]]
    """
    return (query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)) @ key.mT


def additive_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """Return ``v . tanh(q_i + k_j)``, with query and key already projected: Bahdanau's ``v^T tanh(W_q q + W_k k)``.

    It holds one value per query, key and hidden unit, so it takes head_dim times the memory of the other scores.

    Args:
        query: (..., query_tokens, head_dim)
        key: (..., key_tokens, head_dim)
        weight: The vector v, (..., head_dim), one per head or one for all.

    Returns:
        (..., query_tokens, key_tokens)

    >>> additive_scores(torch.zeros(1, 2), torch.tensor([[20.0, -20.0]]), torch.tensor([3.0, 1.0])).tolist()
    [[2.0]]

    Source:
        Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, ICLR 2015,
        https://arxiv.org/abs/1409.0473
    """
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    return (hidden @ weight[..., None, :, None]).squeeze(-1)


def cosine_scores(query: Tensor, key: Tensor, *, scale: float = 1.0, eps: float = 1e-6) -> Tensor:
    """Return ``scale * q_i . k_j / (|q_i| |k_j|)``, with norms of at least ``eps``.

    Shape:
        (..., query_tokens, head_dim), (..., key_tokens, head_dim) -> (..., query_tokens, key_tokens)

    >>> cosine_scores(torch.tensor([[5.0, 0.0]]), torch.tensor([[-3.0, 0.0], [0.0, 2.0]]), scale=10.0).tolist()
    [[-10.0, 0.0]]
    """
    return scale * functional.normalize(query, dim=-1, eps=eps) @ functional.normalize(key, dim=-1, eps=eps).mT
