"""Linear attention: sums over keys in place of weights."""

from collections.abc import Sequence

from torch import Tensor

from zoo.functional.linear_attention import linear_attention, linear_attention_weights
from zoo.functional.validation import check_flag
from zoo.layers.heads import mask_of_keys
from zoo.layers.token_self_attention import TokenSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("linear")
class LinearAttention(TokenSelfAttention):
    """Linear attention.

    ``o_i = phi(q_i)^T S / phi(q_i)^T z`` with ``S = sum_j phi(k_j) v_j^T``, ``z = sum_j phi(k_j)`` and
    ``phi(x) = elu(x) + 1``; under causality the sums end at i. Time and memory grow linearly with the tokens, and no
    weight is ever computed, so there is none to drop.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        is_causal: No token looks past itself.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        projection_dropout: Share of the output dropped in training, 0 up to 1.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens embed_dim head_dim)``, memory ``O(tokens embed_dim)``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> LinearAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs: Fast Autoregressive Transformers with Linear
        Attention, ICML 2020, https://arxiv.org/abs/2006.16236
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        is_causal: bool = False,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        projection_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads=num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            projection_dropout=projection_dropout,
        )
        self.is_causal = check_flag("is_causal", is_causal)

    def forward(self, tokens: Tensor, *, token_mask: Tensor | None = None) -> Tensor:
        """Return the attended tokens.

        Args:
            tokens: (batch, tokens, embed_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
        """
        query, key, value = self.project(tokens, token_mask)
        output = linear_attention(query, key, value, key_mask=mask_of_keys(token_mask), is_causal=self.is_causal)
        return self.join(output, token_mask)

    def attention_weights(
        self, tokens: Tensor, *, heads: Sequence[int] | None = None, token_mask: Tensor | None = None
    ) -> Tensor:
        """Return the weights that :meth:`forward` stands for but never computes, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, tokens)
        """
        query, key, _ = self.project(tokens, token_mask)
        return linear_attention_weights(
            query, key, heads=heads, key_mask=mask_of_keys(token_mask), is_causal=self.is_causal
        )
