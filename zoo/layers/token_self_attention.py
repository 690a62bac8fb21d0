"""What attentions of a sequence to itself share: projections, heads, dropout, padding."""

from torch import Tensor, nn

from zoo.functional.attention import check_backend
from zoo.functional.rotation import Rotation, rotate
from zoo.functional.validation import check_flag, check_probability
from zoo.layers.heads import check_heads, check_tokens, clear_padding, merge_heads, split_heads


class TokenSelfAttention(nn.Module):
    """The way into heads and out of them; a kind of attention stands between :meth:`project` and :meth:`join`.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Raises:
        ValueError: An argument is out of its range.
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
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = check_heads(embed_dim, num_heads)
        self.attention_dropout = check_probability("attention_dropout", attention_dropout)
        self.backend = check_backend(backend)
        self.query_key_value = nn.Linear(embed_dim, 3 * embed_dim, bias=check_flag("qkv_bias", qkv_bias))
        norm = nn.LayerNorm if check_flag("qk_norm", qk_norm) else nn.Identity
        self.query_norm = norm(self.head_dim)
        self.key_norm = norm(self.head_dim)
        self.projection = nn.Linear(embed_dim, embed_dim)
        self.projection_dropout = nn.Dropout(check_probability("projection_dropout", projection_dropout))

    @property
    def dropout_p(self) -> float:
        """Share of the attention weights to drop now: none in evaluation mode."""
        return self.attention_dropout if self.training else 0.0

    def project(
        self, tokens: Tensor, token_mask: Tensor | None = None, rotation: Rotation | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (batch, heads, tokens, head_dim).

        Args:
            tokens: (batch, tokens, embed_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; what others hold is not read.
            rotation: Rotary positions; see :class:`zoo.layers.positions.RotaryPositions2d`.

        Raises:
            ValueError: A shape or dtype does not fit.
        """
        check_tokens("tokens", tokens, self.embed_dim, token_mask)
        fused = self.query_key_value(clear_padding(tokens, token_mask))
        query, key, value = (split_heads(part, self.num_heads) for part in fused.chunk(3, -1))
        query, key = self.query_norm(query), self.key_norm(key)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        return query, key, value

    def join(self, output: Tensor, token_mask: Tensor | None = None) -> Tensor:
        """Merge the heads and project; zeros come out where there is no token."""
        return clear_padding(self.projection_dropout(self.projection(merge_heads(output))), token_mask)
