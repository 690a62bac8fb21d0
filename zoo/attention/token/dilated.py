"""Dilated attention: a token looks at some neighbours, with gaps between them."""

from zoo.functional.sparse_attention import check_pattern
from zoo.layers.sparse_self_attention import SparseSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("dilated")
class DilatedAttention(SparseSelfAttention):
    """Dilated sliding-window attention.

    Token i looks at the tokens ``i + t * dilation`` with ``|t| <= window``, so that as many weights reach ``dilation``
    times as far. Time and memory grow linearly with the tokens. Tokens that are no multiple of ``dilation`` apart
    never meet; layers with different dilations join them.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        window: Tokens to either side that a token looks at, at least 0.
        dilation: Distance between them, at least 1; 1 is a plain sliding window.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens window embed_dim)``, memory ``O(tokens (embed_dim + window))``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> DilatedAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer, 2020, https://arxiv.org/abs/2004.05150,
        section 3.1
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        window: int = 32,
        dilation: int = 2,
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
        self.pattern = check_pattern(window=window, dilation=dilation)
