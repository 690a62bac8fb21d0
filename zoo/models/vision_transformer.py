"""Vision transformers: ViT tiny, small and base for large images, and for images of 32 pixels."""

import functools
import inspect
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import override

from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.functional.validation import check_count, check_flag, check_positive_int, check_probability
from zoo.layers.attention_slots import AttentionSlots, TokenAttentionFactory
from zoo.layers.heads import check_heads
from zoo.layers.patch_embedding import ConvolutionalEmbedding, PatchEmbedding
from zoo.layers.positions import LearnedPositions, RelativePositionBias2d, RotaryPositions2d, SinusoidalPositions2d
from zoo.layers.sequence_pooling import SequencePooling
from zoo.layers.transformer_block import NORM_EPS, TransformerBlock
from zoo.models.backbone import Backbone, check_choice
from zoo.registry import MODELS

Pooling = Literal["class_token", "mean", "attention"]
Positions = Literal["learned", "sinusoidal", "rotary", "relative", "none"]

FEWEST_TOKENS = 16
"""A grid of 4 x 4; with fewer tokens there is little for attention to compare."""


class VisionTransformer(Backbone):
    """A transformer over the patches of an image.

    Tokens stand in the order: class token (if there is one), registers, then the grid row by row; the first two are
    the prefix, ``num_prefix_tokens`` of them. :meth:`grid_size` tells the grid of an image, whose size may be any
    that the embedding can cut: learned positions and relative biases are resized to its grid.

    Linear layers start from ``N(0, 0.02^2)`` with biases of 0, as in the codes of DeiT and timm; so do learned tokens
    and positions. A seed gives the same values to everything but the attentions, whatever those are.

    Args:
        embedding: Makes tokens of images, and tells their grid.
        embed_dim: Width of the tokens, at least 1.
        depth: Blocks, at least 1.
        num_heads: Heads of each attention; must divide ``embed_dim``.
        mlp_ratio: Width inside the perceptrons as a multiple of ``embed_dim``, above 0.
        attention: Builds the self attention of a block; ``None`` for multi-head attention.
        image_size: Height and width of the images the network is made for, or the side of square ones.
        num_classes: Number of logits, at least 1.
        pooling: What is classified: ``class_token``; the ``mean`` of the grid, normalised after the mean; or
            ``attention``, a weighted mean of the grid whose weights a learned query gives.
        num_registers: Extra tokens without a meaning of their own, which take up what concerns the whole image.
        positions: ``learned`` vectors or ``sinusoidal`` ones, added to the tokens; ``rotary``, turned into queries
            and keys; ``relative``, a learned bias per head and offset that all blocks share; ``none``.
        qk_norm: Normalise queries and keys, each head by itself.
        layer_scale: Where learned factors of the branches start, such as 1e-5; ``None`` for none.
        drop_path_rate: Share of the images for which the last block's branches are left out in training; rises
            linearly from 0 at the first block.
        dropout: Share dropped in training from the embedded tokens, after the attentions and in the perceptrons.

    Shape:
        (batch, in_channels, height, width) -> (batch, num_classes)

    Raises:
        ValueError: An argument is out of its range, or the attention cannot take what it would be given.

    Source:
        Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021, https://arxiv.org/abs/2010.11929;
        registers: Darcet et al., ICLR 2024, https://arxiv.org/abs/2309.16588
    """

    classifier_names = ("pool", "head_norm", "head")

    def __init__(
        self,
        embedding: PatchEmbedding | ConvolutionalEmbedding,
        *,
        embed_dim: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float,
        attention: TokenAttentionFactory | None,
        image_size: int | Sequence[int],
        num_classes: int,
        pooling: Pooling,
        num_registers: int,
        positions: Positions,
        qk_norm: bool,
        layer_scale: float | None,
        drop_path_rate: float,
        dropout: float,
    ) -> None:
        super().__init__()
        check_positive_int("depth", depth)
        check_positive_int("num_classes", num_classes)
        check_choice("pooling", pooling, get_args(Pooling))
        check_choice("positions", positions, get_args(Positions))
        check_probability("drop_path_rate", drop_path_rate)
        check_heads(embed_dim, num_heads)
        self.pooling, self.position_scheme = pooling, positions
        self._image_size = _height_and_width(image_size)
        self.embedding = embedding
        grid_size = self.grid_size()
        _warn_of_few_tokens(grid_size, self._image_size)
        self.class_token = _learned_tokens(int(pooling == "class_token"), embed_dim)
        self.registers = _learned_tokens(check_count("num_registers", num_registers), embed_dim)
        self.feature_channels = embed_dim
        self.num_prefix_tokens = num_registers + int(pooling == "class_token")
        self.positions = _create_positions(
            positions, embed_dim, num_heads=num_heads, grid_size=grid_size, num_prefix_tokens=self.num_prefix_tokens
        )
        self.embedding_dropout = nn.Dropout(check_probability("dropout", dropout))
        factory = MultiHeadSelfAttention if attention is None else attention
        check_flag("qk_norm", qk_norm)

        def create_attention(width: int) -> nn.Module:
            module = factory(width, num_heads=num_heads, qk_norm=qk_norm, projection_dropout=dropout)
            return module.apply(_initialise_linear)

        slots = AttentionSlots(create_attention)
        self.blocks = nn.ModuleList()
        for index in range(depth):
            slot = slots.slot(f"blocks.{index}.attention", 1)
            assert slot is not None
            block = TransformerBlock(
                embed_dim,
                attention=slot,
                hidden_dim=_hidden_dim(embed_dim, mlp_ratio),
                layer_scale=layer_scale,
                drop_path_rate=drop_path_rate * index / max(1, depth - 1),
                dropout=dropout,
            )
            block.mlp.apply(_initialise_linear)
            self.blocks.append(block)
        self.takes_grid = self._check_attention()
        normalised_after = pooling == "mean"
        self.norm = nn.Identity() if normalised_after else nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.pool = SequencePooling(embed_dim).apply(_initialise_linear) if pooling == "attention" else None
        self.head_norm = nn.LayerNorm(embed_dim, eps=NORM_EPS) if normalised_after else nn.Identity()
        self.head = nn.Linear(embed_dim, num_classes).apply(_initialise_linear)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images the network is made for; others work too."""
        return self._image_size

    def grid_size(self, image_size: Sequence[int] | None = None) -> tuple[int, int]:
        """Return rows and columns of the tokens of an image.

        Args:
            image_size: Height and width in pixels; ``None`` for those the network is made for.

        Raises:
            ValueError: The image cannot be cut into patches.
        """
        return self.embedding.grid_size(self._image_size if image_size is None else image_size)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of (batch, in_channels, height, width) images."""
        logits: Tensor = self.head(self.summarise(self.encode(images)))
        return logits

    def encode(self, images: Tensor) -> Tensor:
        """Return the tokens after the last block, (batch, num_prefix_tokens + rows * columns, embed_dim).

        They are normalised, except for ``pooling="mean"``, which normalises the mean.
        """
        tokens, options = self._embed(images)
        for block in self.blocks:
            tokens = block(tokens, **options)
        normalised: Tensor = self.norm(tokens)
        return normalised

    @override
    def feature_map(self, images: Tensor) -> Tensor:
        """Return the tokens of the grid as :meth:`encode` makes them, (batch, embed_dim, rows, columns)."""
        grid = self.encode(images)[:, self.num_prefix_tokens :]
        return grid.transpose(1, 2).unflatten(2, self.grid_size(images.shape[-2:]))

    def summarise(self, tokens: Tensor) -> Tensor:
        """Return what the head classifies, (batch, embed_dim), of the tokens that :meth:`encode` returns."""
        grid = tokens[:, self.num_prefix_tokens :]
        if self.pooling == "class_token":
            vectors = tokens[:, 0]
        else:
            vectors = grid.mean(1) if self.pool is None else self.pool(grid)
        normalised: Tensor = self.head_norm(vectors)
        return normalised

    def attention_weights(
        self, images: Tensor, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Return the exact attention weights of some layers, with which the network in its present mode would attend.

        Row i of a map tells how much token i takes from each token; prefix tokens come first. They are computed beside
        the fast path, for the layers and heads asked for alone, before dropout and without gradient.

        Args:
            images: (batch, in_channels, height, width)
            layers: Numbers of the blocks wanted, from 0, in their order; ``None`` for all.
            heads: Numbers of the heads wanted, from 0, in their order; ``None`` for all.

        Returns:
            One tensor per layer, (batch, len(heads), tokens, tokens), whose rows sum to 1.

        Raises:
            ValueError: A layer or head does not exist.
        """
        wanted = list(range(len(self.blocks)) if layers is None else layers)
        for layer in wanted:
            if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < len(self.blocks):
                raise ValueError(f"layers ({wanted}) must be numbers from 0 to {len(self.blocks) - 1}")
        weights: dict[int, Tensor] = {}
        with torch.no_grad():
            tokens, options = self._embed(images)
            for number, block in enumerate(self.blocks[: max(wanted, default=-1) + 1]):
                assert isinstance(block, TransformerBlock)
                if number in wanted:
                    weights[number] = block.attention_weights(tokens, heads=heads, **options)
                tokens = block(tokens, **options)
        return [weights[layer] for layer in wanted]

    def _embed(self, images: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the tokens that enter the first block, and what every block's attention is told besides."""
        image_size = images.shape[-2:]
        grid_size = self.grid_size(image_size)
        if not torch.compiler.is_compiling():
            _warn_of_few_tokens(grid_size, tuple(image_size))
        tokens = self.embedding(images)
        prefix = [token for token in (self.class_token, self.registers) if token is not None]
        tokens = torch.cat([*(token.expand(tokens.shape[0], -1, -1) for token in prefix), tokens], 1)
        options: dict[str, Any] = {"grid_size": grid_size} if self.takes_grid else {}
        if isinstance(self.positions, RotaryPositions2d):
            options["rotation"] = self.positions(grid_size, tokens.device)
        elif isinstance(self.positions, RelativePositionBias2d):
            options["bias"] = self.positions(grid_size)
        elif self.positions is not None:
            tokens = self.positions(tokens, grid_size)
        return self.embedding_dropout(tokens), options

    def _check_attention(self) -> bool:
        """Check that the attention can be told all it would be, and return whether it is to be told the grid."""
        block = self.blocks[0]
        assert isinstance(block, TransformerBlock)
        name, parameters = type(block.attention).__name__, inspect.signature(block.attention.forward).parameters
        needed = {"rotary": "rotation", "relative": "bias"}.get(self.position_scheme)
        if needed is not None and needed not in parameters:
            raise ValueError(
                f"positions={self.position_scheme!r} has no effect on {name}, which takes no {needed}; "
                "take 'learned', 'sinusoidal' or 'none'"
            )
        takes_grid = "grid_size" in parameters and not getattr(block.attention, "is_1d", False)
        if takes_grid and self.num_prefix_tokens:
            raise ValueError(
                f"{name} over rows and columns has no place for {self.num_prefix_tokens} tokens before the grid: take "
                "pooling='mean' or 'attention' and no registers, or windows of a number of tokens"
            )
        return takes_grid


def _height_and_width(image_size: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(image_size, str) or (isinstance(image_size, Sequence) and len(image_size) != 2):
        raise ValueError(f"image_size ({image_size!r}) must be a side in pixels, or height and width")
    height, width = image_size if isinstance(image_size, Sequence) else (image_size, image_size)
    return check_positive_int("image_size height", height), check_positive_int("image_size width", width)


def _create_positions(
    scheme: Positions, embed_dim: int, *, num_heads: int, grid_size: tuple[int, int], num_prefix_tokens: int
) -> nn.Module | None:
    if scheme == "learned":
        return LearnedPositions(embed_dim, grid_size=grid_size, num_prefix_tokens=num_prefix_tokens)
    if scheme == "sinusoidal":
        return SinusoidalPositions2d(embed_dim, num_prefix_tokens=num_prefix_tokens)
    if scheme == "rotary":
        return RotaryPositions2d(embed_dim // num_heads, num_prefix_tokens=num_prefix_tokens)
    if scheme == "relative":
        return RelativePositionBias2d(num_heads, grid_size, num_prefix_tokens=num_prefix_tokens)
    return None


def _hidden_dim(embed_dim: int, mlp_ratio: float) -> int:
    if isinstance(mlp_ratio, bool) or not isinstance(mlp_ratio, int | float) or not 0 < mlp_ratio < float("inf"):
        raise ValueError(f"mlp_ratio ({mlp_ratio!r}) must be a number above 0")
    return max(1, int(embed_dim * mlp_ratio))


def _learned_tokens(count: int, embed_dim: int) -> nn.Parameter | None:
    if count == 0:
        return None
    tokens = nn.Parameter(torch.empty(1, count, embed_dim))
    nn.init.trunc_normal_(tokens, std=0.02)
    return tokens


def _initialise_linear(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@functools.cache
def _warn_of_few_tokens(grid_size: tuple[int, int], image_size: tuple[int, int]) -> None:
    rows, columns = grid_size
    if rows * columns < FEWEST_TOKENS:
        height, width = image_size
        warnings.warn(
            f"an image of {height} x {width} has only {rows * columns} tokens ({rows} x {columns}), too few to "
            "compare its parts; take a model with smaller patches, such as vit_tiny_patch4_32, or larger images",
            stacklevel=7,
        )


def _register(name: str, *, patch_size: int, side: int, width: int, heads: int, classes: int) -> None:
    """Register a network of 12 blocks over patches."""

    @MODELS.register(name)
    def create_vision_transformer(
        *,
        attention: TokenAttentionFactory | None = None,
        num_classes: int = classes,
        in_channels: int = 3,
        image_size: int | Sequence[int] = side,
        pooling: Pooling = "class_token",
        num_registers: int = 0,
        positions: Positions = "learned",
        qk_norm: bool = False,
        layer_scale: float | None = None,
        drop_path_rate: float = 0.0,
        dropout: float = 0.0,
        embed_dim: int = width,
        depth: int = 12,
        num_heads: int = heads,
        mlp_ratio: float = 4.0,
    ) -> VisionTransformer:
        """Create a vision transformer; see :class:`VisionTransformer`."""
        return VisionTransformer(
            PatchEmbedding(in_channels, embed_dim, patch_size=patch_size),
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            attention=attention,
            image_size=image_size,
            num_classes=num_classes,
            pooling=pooling,
            num_registers=num_registers,
            positions=positions,
            qk_norm=qk_norm,
            layer_scale=layer_scale,
            drop_path_rate=drop_path_rate,
            dropout=dropout,
        )


for _size, _width, _heads in (("tiny", 192, 3), ("small", 384, 6), ("base", 768, 12)):
    _register(f"vit_{_size}_patch16_224", patch_size=16, side=224, width=_width, heads=_heads, classes=1000)
    if _size != "base":
        _register(f"vit_{_size}_patch4_32", patch_size=4, side=32, width=_width, heads=_heads, classes=10)
