"""Longformer's attention: neighbours, and a few tokens that see and are seen by all."""

from zoo.functional.sparse_attention import check_pattern
from zoo.layers.sparse_self_attention import SparseSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("longformer")
class LongformerAttention(SparseSelfAttention):
    """Sliding-window attention with global tokens.

    Token i looks at the tokens j with ``|i - j| <= window`` and at the first ``num_global`` tokens, which themselves
    look at all: a class token stands there. Time and memory grow linearly with the tokens. Unlike in the paper, global
    tokens use the projections of all others, so that the result is that of one softmax under one mask.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        window: Tokens to either side that a token looks at, at least 0.
        num_global: How many of the first tokens are global, at least 0.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens (window + num_global) embed_dim)``, memory ``O(tokens (embed_dim + window + num_global))``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> LongformerAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer, 2020, https://arxiv.org/abs/2004.05150
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        window: int = 32,
        num_global: int = 1,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        attention_dropout: float = 0.0,
        projection_dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads=num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            attention_dropout=attention_dropout,
            projection_dropout=projection_dropout,
            backend=backend,
        )
        self.pattern = check_pattern(window=window, num_global=num_global)
