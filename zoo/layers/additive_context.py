"""Additive attention of a state to a context: which tokens matter to what comes next."""

import torch
from torch import Tensor, nn

from zoo.functional.additive_attention import additive_attention, additive_attention_weights
from zoo.functional.attention_inputs import without_autocast
from zoo.functional.softmax import softmax_dtype
from zoo.functional.validation import check_positive_int
from zoo.layers.heads import check_tokens, clear_padding, mask_of_keys


class AdditiveContext(nn.Module):
    """The context as a state sees it: a mean of its tokens, weighted by how well each fits.

    ``a_j = softmax_j(v^T tanh(W_q s + W_k y_j + b))``, ``c = sum_j a_j y_j``. The keys ``W_k y_j + b`` do not depend on
    the state, so :meth:`project` computes them once.

    Args:
        state_dim: Width of the state s, at least 1.
        context_dim: Width of the tokens y, at least 1.
        attention_dim: Width in which they are compared, at least 1.

    Shape:
        (batch, state_dim) and (batch, context_tokens, context_dim) -> (batch, context_dim)

    Raises:
        ValueError: An argument is out of its range.

    Source:
        Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate, ICLR 2015,
        https://arxiv.org/abs/1409.0473
    """

    def __init__(self, state_dim: int, context_dim: int, *, attention_dim: int) -> None:
        super().__init__()
        check_positive_int("attention_dim", attention_dim)
        self.context_dim = check_positive_int("context_dim", context_dim)
        self.query = nn.Linear(check_positive_int("state_dim", state_dim), attention_dim, bias=False)
        self.key = nn.Linear(context_dim, attention_dim)
        self.score = nn.Parameter(torch.empty(1, attention_dim))
        nn.init.uniform_(self.score, -(attention_dim**-0.5), attention_dim**-0.5)

    def project(self, context: Tensor, context_mask: Tensor | None = None) -> Tensor:
        """Return the keys of a context, (batch, context_tokens, attention_dim), in the precision of the scores.

        Raises:
            ValueError: A shape or dtype does not fit.
        """
        check_tokens("context", context, self.context_dim, context_mask)
        keys: Tensor = self.key(clear_padding(context, context_mask))
        return keys.to(softmax_dtype(keys.dtype))

    def forward(self, state: Tensor, keys: Tensor, context: Tensor, context_mask: Tensor | None = None) -> Tensor:
        """Return what the state takes from the context; zeros where no token exists.

        Args:
            state: (batch, state_dim)
            keys: What :meth:`project` made of the context.
            context: (batch, context_tokens, context_dim)
            context_mask: Boolean (batch, context_tokens), True for tokens that exist; the others are never read.
        """
        query = self.query(state)[:, None, None]
        # Otherwise autocast would round keys and context, which do not change, at every step anew.
        with without_autocast(keys):
            output = additive_attention(
                query, keys[:, None], context[:, None], self.score, mask=mask_of_keys(context_mask)
            )
        return output[:, 0, 0]

    def attention_weights(self, state: Tensor, keys: Tensor, context_mask: Tensor | None = None) -> Tensor:
        """Return the weights that :meth:`forward` uses, (batch, context_tokens)."""
        query = self.query(state)[:, None, None]
        weights = additive_attention_weights(query, keys[:, None], self.score, mask=mask_of_keys(context_mask))
        return weights[:, 0, 0]
