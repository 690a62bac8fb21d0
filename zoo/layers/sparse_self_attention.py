"""What sparse attentions of a sequence to itself share: they differ in who looks at whom."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.functional.attention_weights import attention_weights
from zoo.functional.rotation import Rotation
from zoo.functional.sparse_attention import SparsePattern, sparse_attention, sparse_mask
from zoo.layers.heads import mask_of_keys
from zoo.layers.token_self_attention import TokenSelfAttention


class SparseSelfAttention(TokenSelfAttention):
    """Multi-head self attention under a sparse pattern, in time and memory linear in the tokens.

    A kind of it sets ``pattern``; what that holds is told by
    :func:`zoo.functional.sparse_attention.sparse_attention`, the arguments by :class:`TokenSelfAttention`.

    Shape:
        (batch, tokens, embed_dim), kept
    """

    pattern: SparsePattern

    def forward(self, tokens: Tensor, *, token_mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        """Return the attended tokens.

        Args:
            tokens: (batch, tokens, embed_dim)
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
            rotation: Rotary positions of the tokens.
        """
        query, key, value = self.project(tokens, token_mask, rotation)
        output = sparse_attention(
            query,
            key,
            value,
            **self.pattern,
            key_mask=mask_of_keys(token_mask),
            dropout_p=self.dropout_p,
            backend=self.backend,
        )
        return self.join(output, token_mask)

    def mask(self, num_tokens: int, device: torch.device | None = None) -> Tensor:
        """Return which tokens look at which, (1, 1, tokens, tokens)."""
        return sparse_mask(num_tokens, **self.pattern, device=device)

    def attention_weights(
        self,
        tokens: Tensor,
        *,
        heads: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the weights that :meth:`forward` uses, before dropout, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, tokens), zeros where a token does not look
        """
        query, key, _ = self.project(tokens, token_mask, rotation)
        mask = mask_of_keys(token_mask, self.mask(tokens.shape[1], tokens.device))
        return attention_weights(query, key, heads=heads, mask=mask)
