"""Additive attention: a small network scores each pair of tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.functional.additive_attention import additive_attention, additive_attention_weights
from zoo.layers.heads import mask_of_keys
from zoo.layers.token_self_attention import TokenSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("additive")
class AdditiveAttention(TokenSelfAttention):
    """Additive (Bahdanau) self attention, in heads.

    ``score_ij = v^T tanh(W_q x_i + W_k x_j)``, ``o_i = softmax_j(score_ij) W_v x_j``, with one v per head. It holds
    ``embed_dim`` numbers per pair of tokens in memory, so it is meant for short sequences.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens^2 embed_dim)``, memory ``O(tokens^2 embed_dim)``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> AdditiveAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, ICLR 2015,
        https://arxiv.org/abs/1409.0473
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        attention_dropout: float = 0.0,
        projection_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads=num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            attention_dropout=attention_dropout,
            projection_dropout=projection_dropout,
        )
        self.score = nn.Parameter(torch.empty(num_heads, self.head_dim))
        nn.init.uniform_(self.score, -(self.head_dim**-0.5), self.head_dim**-0.5)

    def forward(self, tokens: Tensor, *, token_mask: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Return the attended tokens.

        Args:
            tokens: (batch, tokens, embed_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
            mask: Boolean (batch, heads, tokens, tokens), each axis its size or 1; True where a token may look.
        """
        query, key, value = self.project(tokens, token_mask)
        output = additive_attention(
            query, key, value, self.score, mask=mask_of_keys(token_mask, mask), dropout_p=self.dropout_p
        )
        return self.join(output, token_mask)

    def attention_weights(
        self,
        tokens: Tensor,
        *,
        heads: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the weights that :meth:`forward` uses, before dropout, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, tokens)
        """
        query, key, _ = self.project(tokens, token_mask)
        return additive_attention_weights(query, key, self.score, heads=heads, mask=mask_of_keys(token_mask, mask))
