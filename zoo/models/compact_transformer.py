"""Compact convolutional transformers, for small data: a convolutional stem, and attention pooling of the tokens."""

from collections.abc import Sequence

from zoo.layers.attention_slots import TokenAttentionFactory
from zoo.layers.patch_embedding import ConvolutionalEmbedding
from zoo.models.vision_transformer import Pooling, Positions, VisionTransformer
from zoo.registry import MODELS


def _register(name: str, *, num_convolutions: int, width: int, blocks: int, heads: int, ratio: float) -> None:
    """Register a network named as in the paper: blocks, side of the kernels x convolutions, side of the images."""

    @MODELS.register(name)
    def create_compact_transformer(
        *,
        attention: TokenAttentionFactory | None = None,
        num_classes: int = 10,
        in_channels: int = 3,
        image_size: int | Sequence[int] = 32,
        pooling: Pooling = "attention",
        num_registers: int = 0,
        positions: Positions = "learned",
        qk_norm: bool = False,
        layer_scale: float | None = None,
        drop_path_rate: float = 0.0,
        dropout: float = 0.0,
        embed_dim: int = width,
        depth: int = blocks,
        num_heads: int = heads,
        mlp_ratio: float = ratio,
    ) -> VisionTransformer:
        """Create a compact convolutional transformer (Hassani et al., 2021, https://arxiv.org/abs/2104.05704).

        A :class:`VisionTransformer` whose tokens are pixels of a convolved and pooled image and whose classifier reads
        their attention-weighted mean. Unlike in the authors' code, projections to queries, keys and values have
        biases, scores of the pooling have none, and the second norm of a block stands in its branch.
        """
        return VisionTransformer(
            ConvolutionalEmbedding(in_channels, embed_dim, num_layers=num_convolutions),
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


_register("cct_2_3x2_32", num_convolutions=2, width=128, blocks=2, heads=2, ratio=1.0)
_register("cct_7_3x1_32", num_convolutions=1, width=256, blocks=7, heads=4, ratio=2.0)
