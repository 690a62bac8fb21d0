"""A transformer decoder: each word looks at those before it, and at a context."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.attention.token.cross import CrossAttention
from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.functional.validation import check_positive_int, check_probability
from zoo.layers.mlp import MLP
from zoo.layers.positions import SinusoidalPositions1d
from zoo.layers.transformer_block import NORM_EPS
from zoo.models.caption_search import State
from zoo.models.caption_words import PAD


class DecoderBlock(nn.Module):
    """Self attention to earlier words, cross attention to the context, a perceptron; norms in the branches.

    Args:
        embed_dim: Width of the words, at least 1.
        context_dim: Width of the context's tokens.
        num_heads: Heads of each attention; must divide ``embed_dim``.
        dropout: Share dropped in training after the attentions and in the perceptron, 0 up to 1.

    Shape:
        (batch, steps, embed_dim) and (batch, context_tokens, context_dim) -> (batch, steps, embed_dim)
    """

    def __init__(self, embed_dim: int, context_dim: int, *, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.attention = MultiHeadSelfAttention(
            embed_dim, num_heads=num_heads, is_causal=True, projection_dropout=dropout
        )
        self.norm2 = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.cross_attention = CrossAttention(
            embed_dim, num_heads=num_heads, context_dim=context_dim, projection_dropout=dropout
        )
        self.norm3 = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = MLP(embed_dim, 4 * embed_dim, dropout=dropout)

    def forward(self, tokens: Tensor, context: Tensor, *, token_mask: Tensor, context_mask: Tensor | None) -> Tensor:
        """Return the words after the block."""
        tokens = tokens + self.attention(self.norm1(tokens), token_mask=token_mask)
        tokens = tokens + self.cross_attention(
            self.norm2(tokens), context, token_mask=token_mask, context_mask=context_mask
        )
        mapped: Tensor = tokens + self.mlp(self.norm3(tokens))
        return mapped

    def attention_weights(
        self, tokens: Tensor, context: Tensor, *, token_mask: Tensor, context_mask: Tensor | None
    ) -> Tensor:
        """Return the weights of the attention to the context, (batch, heads, steps, context_tokens)."""
        tokens = tokens + self.attention(self.norm1(tokens), token_mask=token_mask)
        return self.cross_attention.attention_weights(
            self.norm2(tokens), context, token_mask=token_mask, context_mask=context_mask
        )


class TransformerDecoder(nn.Module):
    """Sequence-to-sequence decoder of blocks, for any context.

    Words are embedded, scaled by ``sqrt(embed_dim)``, and get sinusoidal positions; after the last block comes a norm
    and a linear layer. A written word is computed from all words before it anew, which costs little for captions.

    Args:
        num_words: Words that can be read and written, special ones included.
        context_dim: Width of the context's tokens, at least 1.
        embed_dim: Width of the words, even.
        depth: Blocks, at least 1.
        num_heads: Heads of each attention; must divide ``embed_dim``.
        dropout: Share dropped in training from the embedded words, after the attentions and in the perceptrons.

    Shape:
        words (batch, steps) and context (batch, context_tokens, context_dim) -> (batch, steps, num_words)

    Raises:
        ValueError: An argument is out of its range.

    >>> decoder = TransformerDecoder(num_words=10, context_dim=6, embed_dim=32, depth=1, num_heads=1)
    >>> decoder(torch.tensor([[1, 4, 5]]), torch.zeros(1, 7, 6)).shape
    torch.Size([1, 3, 10])

    Source:
        Vaswani et al.: Attention Is All You Need, NeurIPS 2017, https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        *,
        num_words: int,
        context_dim: int,
        embed_dim: int = 128,
        depth: int = 2,
        num_heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive_int("depth", depth)
        self.num_words = check_positive_int("num_words", num_words)
        self.embed_dim = check_positive_int("embed_dim", embed_dim)
        self.embedding = nn.Embedding(num_words, embed_dim, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=embed_dim**-0.5)
        with torch.no_grad():
            self.embedding.weight[PAD].zero_()
        self.positions = SinusoidalPositions1d(embed_dim)
        self.dropout = nn.Dropout(check_probability("dropout", dropout))
        self.blocks = nn.ModuleList(
            DecoderBlock(embed_dim, context_dim, num_heads=num_heads, dropout=dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.head = nn.Linear(embed_dim, num_words)

    def forward(self, words: Tensor, context: Tensor, *, context_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the word behind each of ``words``, which are given ("teacher forcing").

        Args:
            words: int64 (batch, steps), the start first; filling behind the end is never looked at.
            context: (batch, context_tokens, context_dim)
            context_mask: Boolean (batch, context_tokens), True for tokens that exist; the others are never read.
        """
        tokens, token_mask = self._embed(words)
        for block in self.blocks:
            tokens = block(tokens, context, token_mask=token_mask, context_mask=context_mask)
        logits: Tensor = self.head(self.norm(tokens))
        return logits

    @torch.no_grad()
    def attention_weights(
        self,
        words: Tensor,
        context: Tensor,
        *,
        context_mask: Tensor | None = None,
        layers: Sequence[int] | None = None,
    ) -> Tensor:
        """Return where it looks before it writes the word behind each of ``words``.

        Args:
            words: int64 (batch, steps), the start first.
            context: (batch, context_tokens, context_dim)
            context_mask: Boolean (batch, context_tokens), True for tokens that exist.
            layers: Numbers of the blocks wanted, from 0; ``None`` for all.

        Returns:
            (batch, blocks * heads, steps, context_tokens); rows sum to 1
        """
        wanted = range(len(self.blocks)) if layers is None else layers
        tokens, token_mask = self._embed(words)
        weights = {}
        for number, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            if number in wanted:
                weights[number] = block.attention_weights(
                    tokens, context, token_mask=token_mask, context_mask=context_mask
                )
            tokens = block(tokens, context, token_mask=token_mask, context_mask=context_mask)
        return torch.cat([weights[number] for number in wanted], 1)

    def start(self, context: Tensor, *, context_mask: Tensor | None = None) -> State:
        """Return the state before the first word."""
        state = {"words": torch.zeros(context.shape[0], 0, dtype=torch.int64, device=context.device)}
        state["context"] = context
        return state if context_mask is None else {**state, "context_mask": context_mask}

    def step(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (batch, num_words) of the words behind ``words`` (batch,), and the next state."""
        prefix = torch.cat([state["words"], words[:, None]], 1)
        logits = self(prefix, state["context"], context_mask=state.get("context_mask"))
        return logits[:, -1], {**state, "words": prefix}

    def _embed(self, words: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.positions(self.embedding(words) * self.embed_dim**0.5)
        return self.dropout(tokens), words != PAD
