"""BigBird's attention: neighbours, global tokens, and a few tokens far away at random."""

from zoo.functional.sparse_attention import check_pattern
from zoo.layers.sparse_self_attention import SparseSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("big_bird")
class BigBirdAttention(SparseSelfAttention):
    """Sliding-window attention with global tokens and random blocks.

    Token i looks at the tokens j with ``|i - j| <= window``, at the first ``num_global`` tokens, which themselves look
    at all, and at ``num_random`` blocks of ``block_size`` tokens that its own block draws. Time and memory grow
    linearly with the tokens. Unlike in the paper, window and global tokens are counted in tokens, not in blocks, and
    a random block may fall on the window.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        window: Tokens to either side that a token looks at, at least 0.
        num_global: How many of the first tokens are global, at least 0.
        num_random: Random blocks that a block of tokens looks at, at least 0.
        block_size: Tokens per block, at least 1.
        seed: What the random blocks are drawn from; give layers different ones.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens (window + num_global + num_random block_size) embed_dim)``, memory
        ``O(tokens (num_random embed_dim + window + num_global))``.

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> BigBirdAttention(64, num_heads=2)(torch.zeros(2, 5, 64)).shape
    torch.Size([2, 5, 64])

    Source:
        Zaheer et al.: Big Bird: Transformers for Longer Sequences, NeurIPS 2020, https://arxiv.org/abs/2007.14062
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        window: int = 32,
        num_global: int = 1,
        num_random: int = 1,
        block_size: int = 32,
        seed: int = 0,
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
        self.pattern = check_pattern(
            window=window, num_global=num_global, num_random=num_random, block_size=block_size, seed=seed
        )
