"""Window attention: the tokens are cut into windows, and each looks at those of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.functional.attention import attention
from zoo.functional.attention_inputs import check_heads_asked_for
from zoo.functional.masks import window_partition_mask
from zoo.functional.rotation import Rotation
from zoo.functional.validation import check_flag, check_positive_int
from zoo.functional.windows import WindowPartition
from zoo.layers.heads import mask_of_keys
from zoo.layers.positions import RelativePositionBias2d
from zoo.layers.token_self_attention import TokenSelfAttention
from zoo.registry import TOKEN_ATTENTION


@TOKEN_ATTENTION.register("window")
class WindowAttention(TokenSelfAttention):
    """Self attention within windows that stand side by side.

    A sequence is cut into windows of ``window_size`` tokens, or a grid into windows of ``window_size`` rows and
    columns. ``shifted`` moves the cuts by half a window, so that alternating layers join neighbouring windows; windows
    at the border are then smaller. A window that covers a whole side is not shifted along it. Time and memory grow
    linearly with the tokens.

    Args:
        embed_dim: Width of the tokens, at least 1.
        num_heads: At least 1; must divide ``embed_dim``.
        window_size: Tokens of a window, or its rows and columns, at least 1.
        shifted: Move the cuts by half a window.
        relative_bias: Add a learned scalar to the score of each pair, per head and offset of the two.
        qkv_bias: Give the projections to queries, keys and values biases.
        qk_norm: Normalise queries and keys, each head by itself, with learned gains.
        attention_dropout: Share of the attention weights dropped in training, 0 up to 1.
        projection_dropout: Share of the output dropped in training, 0 up to 1.
        backend: What computes attention; see :func:`zoo.functional.attention.attention`.

    Shape:
        (batch, tokens, embed_dim), kept

    Cost:
        Time ``O(tokens window_tokens embed_dim)``, memory ``O(tokens embed_dim)`` in fused kernels, else
        ``O(tokens window_tokens num_heads)``.

    Raises:
        ValueError: An argument is out of its range.

    >>> WindowAttention(64, num_heads=2, window_size=(2, 3))(torch.zeros(2, 20, 64), grid_size=(4, 5)).shape
    torch.Size([2, 20, 64])

    Source:
        Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021,
        https://arxiv.org/abs/2103.14030
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        window_size: int | Sequence[int] = 7,
        shifted: bool = False,
        relative_bias: bool = False,
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
        self.is_1d = not isinstance(window_size, Sequence)
        self.window_size = _sides(window_size)
        self.shifted = check_flag("shifted", shifted)
        check_flag("relative_bias", relative_bias)
        self.relative_bias = RelativePositionBias2d(num_heads, self.window_size) if relative_bias else None

    def forward(
        self,
        tokens: Tensor,
        *,
        grid_size: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the attended tokens.

        Args:
            tokens: (batch, tokens, embed_dim); those of a grid stand row by row.
            grid_size: Rows and columns of the grid, for windows of rows and columns; ``None`` for a sequence.
            token_mask: Boolean (batch, tokens), True for tokens that exist; the others are never read and come out 0.
            rotation: Rotary positions of the tokens.

        Raises:
            ValueError: The grid is missing, not wanted, or has another number of tokens.
        """
        query, key, value = self.project(tokens, token_mask, rotation)
        partition = self._partition(tokens.shape[1], grid_size)
        output = attention(
            partition.split(query),
            partition.split(key),
            partition.split(value),
            mask=partition.mask(mask_of_keys(token_mask), len(tokens), tokens.device),
            bias=None if self.relative_bias is None else self.relative_bias(),
            dropout_p=self.dropout_p,
            backend=self.backend,
        )
        return self.join(partition.join(output), token_mask)

    def mask(
        self, num_tokens: int, grid_size: Sequence[int] | None = None, device: torch.device | None = None
    ) -> Tensor:
        """Return which tokens look at which, (1, 1, tokens, tokens)."""
        partition = self._partition(num_tokens, grid_size)
        return window_partition_mask(partition.grid_size, partition.window_size, shift=partition.shift, device=device)

    def attention_weights(
        self,
        tokens: Tensor,
        *,
        heads: Sequence[int] | None = None,
        grid_size: Sequence[int] | None = None,
        token_mask: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Return the weights that :meth:`forward` uses, before dropout, for the heads asked for.

        Returns:
            (batch, len(heads), tokens, tokens), zeros between tokens of different windows
        """
        chosen = check_heads_asked_for(heads, self.num_heads)
        with torch.no_grad():
            query, key, _ = (part[:, chosen] for part in self.project(tokens, token_mask, rotation))
            partition = self._partition(tokens.shape[1], grid_size)
            identity = torch.eye(tokens.shape[1], dtype=query.dtype, device=query.device)
            weights = attention(
                partition.split(query),
                partition.split(key),
                partition.split(identity.expand(*query.shape[:2], -1, -1)),
                mask=partition.mask(mask_of_keys(token_mask), len(tokens), tokens.device),
                bias=None if self.relative_bias is None else self.relative_bias()[:, chosen],
                backend="reference",
            )
            return partition.join(weights)

    def _partition(self, num_tokens: int, grid_size: Sequence[int] | None) -> WindowPartition:
        if (grid_size is None) != self.is_1d:
            wanted = "None for windows of a sequence" if self.is_1d else "the rows and columns of the tokens"
            raise ValueError(f"grid_size ({grid_size}) must be {wanted}")
        rows, columns = (1, num_tokens) if grid_size is None else grid_size
        if rows * columns != num_tokens:
            raise ValueError(f"grid_size ({rows}, {columns}) has {rows * columns} tokens, but there are {num_tokens}")
        height, width = self.window_size
        shift = (
            height // 2 if self.shifted and height < rows else 0,
            width // 2 if self.shifted and width < columns else 0,
        )
        return WindowPartition((rows, columns), (height, width), shift)


def _sides(window_size: int | Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a window; one of a sequence has one row."""
    if not isinstance(window_size, Sequence):
        return 1, check_positive_int("window_size", window_size)
    if isinstance(window_size, str) or len(window_size) != 2:
        raise ValueError(f"window_size ({window_size!r}) must be an integer, or two: rows and columns")
    rows, columns = window_size
    return check_positive_int("window_size rows", rows), check_positive_int("window_size columns", columns)
