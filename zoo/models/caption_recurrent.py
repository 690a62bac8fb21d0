"""A recurrent decoder that looks at a context by additive attention before every word."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from zoo.functional.softmax import softmax_dtype
from zoo.functional.validation import check_positive_int, check_probability
from zoo.layers.additive_context import AdditiveContext
from zoo.layers.heads import clear_padding
from zoo.models.caption_search import State
from zoo.models.caption_words import PAD


class RecurrentDecoder(nn.Module):
    """Sequence-to-sequence decoder with additive attention, for any context: an image, a sentence, a sound.

    With the state s, the word before y and the context Z: ``c_i = attention(s_{i-1}, Z)``,
    ``s_i = GRU([E y_{i-1}; c_i], s_{i-1})``, ``logits_i = W_o tanh(W_h [s_i; c_i; E y_{i-1}])``. The first state is
    ``tanh(W_0 mean(Z))``. In the paper the output layer is a maxout instead of tanh.

    Args:
        num_words: Words that can be read and written, special ones included.
        context_dim: Width of the context's tokens, at least 1.
        embed_dim: Width of the embedded words, at least 1.
        hidden_dim: Width of the state, at least 1.
        attention_dim: Width in which the state and the context are compared, at least 1.
        dropout: Share of embedded words and of the output layer's input dropped in training, 0 up to 1.

    Shape:
        words (batch, steps) and context (batch, context_tokens, context_dim) -> (batch, steps, num_words)

    Raises:
        ValueError: An argument is out of its range.

    >>> decoder = RecurrentDecoder(num_words=10, context_dim=6, embed_dim=8, hidden_dim=16)
    >>> decoder(torch.tensor([[1, 4, 5]]), torch.zeros(1, 7, 6)).shape
    torch.Size([1, 3, 10])

    Source:
        Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, ICLR 2015,
        https://arxiv.org/abs/1409.0473; for images Xu et al.: Show, Attend and Tell, ICML 2015,
        https://arxiv.org/abs/1502.03044
    """

    def __init__(
        self,
        *,
        num_words: int,
        context_dim: int,
        embed_dim: int = 128,
        hidden_dim: int = 256,
        attention_dim: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive_int("num_words", num_words)
        check_positive_int("embed_dim", embed_dim)
        self.num_words = num_words
        self.embedding = nn.Embedding(num_words, embed_dim, padding_idx=PAD)
        self.attention = AdditiveContext(hidden_dim, context_dim, attention_dim=attention_dim)
        self.first_state = nn.Linear(context_dim, hidden_dim)
        self.cell = nn.GRUCell(embed_dim + context_dim, hidden_dim)
        self.hidden = nn.Linear(hidden_dim + context_dim + embed_dim, embed_dim)
        self.dropout = nn.Dropout(check_probability("dropout", dropout))
        self.head = nn.Linear(embed_dim, num_words)

    def forward(self, words: Tensor, context: Tensor, *, context_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the word behind each of ``words``, which are given ("teacher forcing").

        Args:
            words: int64 (batch, steps), the start first; what comes out behind the end means nothing.
            context: (batch, context_tokens, context_dim)
            context_mask: Boolean (batch, context_tokens), True for tokens that exist; the others are never read.
        """
        state = self.start(context, context_mask=context_mask)
        return torch.stack([logits for logits, _ in self._steps(words, state)], 1)

    @torch.no_grad()
    def attention_weights(self, words: Tensor, context: Tensor, *, context_mask: Tensor | None = None) -> Tensor:
        """Return where it looks before it writes the word behind each of ``words``.

        Returns:
            (batch, 1, steps, context_tokens); rows sum to 1
        """
        state = self.start(context, context_mask=context_mask)
        weights = [self._weights(state)]
        weights += [self._weights(after) for _, after in self._steps(words[:, :-1], state)]
        return torch.stack(weights, 1)[:, None]

    def start(self, context: Tensor, *, context_mask: Tensor | None = None) -> State:
        """Return the state before the first word."""
        keys = self.attention.project(context, context_mask)
        clean = clear_padding(context, context_mask)
        clean = clean.to(softmax_dtype(clean.dtype))  # once, not at every step
        num_tokens = clean.shape[1] if context_mask is None else context_mask.sum(1, keepdim=True).clamp_min(1)
        state = {
            "hidden": torch.tanh(self.first_state((clean.sum(1) / num_tokens).to(context.dtype))),
            "context": clean,
            "keys": keys,
        }
        return state if context_mask is None else {**state, "context_mask": context_mask}

    def step(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (batch, num_words) of the words behind ``words`` (batch,), and the next state."""
        seen = self.attention(state["hidden"], state["keys"], state["context"], state.get("context_mask"))
        embedded = self.dropout(self.embedding(words))
        seen = seen.to(embedded.dtype)
        hidden = self.cell(torch.cat([embedded, seen], 1), state["hidden"])
        joined = self.dropout(torch.cat([hidden, seen, embedded], 1))
        logits = self.head(torch.tanh(self.hidden(joined)))
        return logits, {**state, "hidden": hidden}

    def _steps(self, words: Tensor, state: State) -> Iterator[tuple[Tensor, State]]:
        for place in range(words.shape[1]):
            logits, state = self.step(words[:, place], state)
            yield logits, state

    def _weights(self, state: State) -> Tensor:
        return self.attention.attention_weights(state["hidden"], state["keys"], state.get("context_mask"))
