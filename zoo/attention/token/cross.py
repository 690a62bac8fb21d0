"""Cross attention: the tokens of one sequence look at those of another."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.functional.attention import attention, check_backend
from zoo.functional.attention_weights import attention_weights
from zoo.functional.validation import check_flag, check_positive_int, check_probability
from zoo.layers.heads import check_heads, check_tokens, clear_padding, mask_of_keys, merge_heads, split_heads
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("cross")
class CrossAttention(nn.Module):
    """Multi-head attention of one sequence to another, of any length and width.

    ``O = concat_h(softmax(Q_h K_h^T / sqrt(head_dim) + bias) V_h) W_o`` with ``Q = X W_q`` from the tokens and
    ``K, V = Y W_k, Y W_v`` from the context.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        context_dim: Width of the context, at least 1; ``None`` for that of the tokens.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim) and (batch, context_tokens, context_dim) -> (batch, tokens, embed_dim)

    Cost:
        Time ``O(tokens context_tokens embed_dim)``, memory ``O((tokens + context_tokens) embed_dim)`` in fused kernels,
        else ``O(tokens context_tokens num_heads)``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> CrossAttention(64, num_heads=2, context_dim=48)(torch.zeros(2, 5, 64), torch.zeros(2, 9, 48)).shape
    torch.Size([2, 5, 64])

    Source:
        Vaswani et al.: Attention Is All You Need, NeurIPS 2017, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        context_dim: int | None = None,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        attention_dropout: float = 0.0,
        projection_dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = check_heads(embed_dim, num_heads)
        self.context_dim = embed_dim if context_dim is None else check_positive_int("context_dim", context_dim)
        self.attention_dropout = check_probability("attention_dropout", attention_dropout)
        self.backend = check_backend(backend)
        self.query = nn.Linear(embed_dim, embed_dim, bias=check_flag("qkv_bias", qkv_bias))
        self.key_value = nn.Linear(self.context_dim, 2 * embed_dim, bias=qkv_bias)
        norm = nn.LayerNorm if check_flag("qk_norm", qk_norm) else nn.Identity
        self.query_norm = norm(self.head_dim)
        self.key_norm = norm(self.head_dim)
        self.projection = nn.Linear(embed_dim, embed_dim)
        self.projection_dropout = nn.Dropout(check_probability("projection_dropout", projection_dropout))

    def forward(
        self,
        tokens: Tensor,
        context: Tensor,
        *,
        token_mask: Tensor | None = None,
        context_mask: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the tokens with what they took from the context.

        Args:
            tokens: (batch, tokens, embed_dim)
            context: (batch, context_tokens, context_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
            context_mask: Boolean (batch, context_tokens), True for tokens that exist; the others are never read.
            mask: Boolean (batch, heads, tokens, context_tokens), each axis its size or 1; True where a token may look.
            bias: Added to the scores, of such a shape.
        """
        query, key, value = self._project(tokens, context, token_mask, context_mask)
        output = attention(
            query,
            key,
            value,
            mask=mask_of_keys(context_mask, mask),
            bias=bias,
            dropout_p=self.attention_dropout if self.training else 0.0,
            backend=self.backend,
        )
        return clear_padding(self.projection_dropout(self.projection(merge_heads(output))), token_mask)

    def attention_weights(
        self,
        tokens: Tensor,
        context: Tensor,
        *,
        heads: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        context_mask: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the weights that :meth:`forward` uses, before dropout, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, context_tokens)
        """
        query, key, _ = self._project(tokens, context, token_mask, context_mask)
        return attention_weights(query, key, heads=heads, mask=mask_of_keys(context_mask, mask), bias=bias)

    def _project(
        self, tokens: Tensor, context: Tensor, token_mask: Tensor | None, context_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        check_tokens("tokens", tokens, self.embed_dim, token_mask)
        check_tokens("context", context, self.context_dim, context_mask)
        query = split_heads(self.query(clear_padding(tokens, token_mask)), self.num_heads)
        fused = self.key_value(clear_padding(context, context_mask))
        key, value = (split_heads(part, self.num_heads) for part in fused.chunk(2, -1))
        return self.query_norm(query), self.key_norm(key), value
