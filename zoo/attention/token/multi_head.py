"""Multi-head self attention: every token looks at every other."""

from collections.abc import Sequence

from torch import Tensor

from zoo.functional.attention import attention
from zoo.functional.attention_weights import attention_weights
from zoo.functional.rotation import Rotation
from zoo.functional.validation import check_count, check_flag
from zoo.layers.heads import mask_of_keys
from zoo.layers.token_self_attention import TokenSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("multi_head")
class MultiHeadSelfAttention(TokenSelfAttention):
    """Multi-head self attention.

    ``O = concat_h(softmax(Q_h K_h^T / sqrt(head_dim) + bias) V_h) W_o`` with ``Q, K, V = X W_q, X W_k, X W_v`` cut into
    heads.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        is_causal: No token looks past itself.
        window: No token looks further than this to either side, at least 0; ``None`` for any distance.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens^2 embed_dim)``, memory ``O(tokens embed_dim)`` in fused kernels, else ``O(tokens^2 num_heads)``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> MultiHeadSelfAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Vaswani et al.: Attention Is All You Need, NeurIPS 2017, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        is_causal: bool = False,
        window: int | None = None,
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
        self.is_causal = check_flag("is_causal", is_causal)
        self.window = None if window is None else check_count("window", window)

    def forward(
        self,
        tokens: Tensor,
        *,
        token_mask: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the attended tokens.

        Args:
            tokens: (batch, tokens, embed_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
            mask: Boolean (batch, heads, tokens, tokens), each axis its size or 1; True where a token may look.
            bias: Added to the scores, of such a shape; a relative position bias, for one.
            rotation: Rotary positions of the tokens.
        """
        query, key, value = self.project(tokens, token_mask, rotation)
        output = attention(
            query,
            key,
            value,
            mask=mask_of_keys(token_mask, mask),
            bias=bias,
            is_causal=self.is_causal,
            window=self.window,
            dropout_p=self.dropout_p,
            backend=self.backend,
        )
        return self.join(output, token_mask)

    def attention_weights(
        self,
        tokens: Tensor,
        *,
        heads: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the weights that :meth:`forward` uses, before dropout, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, tokens)
        """
        query, key, _ = self.project(tokens, token_mask, rotation)
        return attention_weights(
            query,
            key,
            heads=heads,
            mask=mask_of_keys(token_mask, mask),
            bias=bias,
            is_causal=self.is_causal,
            window=self.window,
        )
