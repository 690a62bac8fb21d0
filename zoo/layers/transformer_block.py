"""The block of a transformer: attention between the tokens, then a perceptron for each."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from zoo.layers.drop_path import DropPath
from zoo.layers.layer_scale import LayerScale
from zoo.layers.mlp import MLP

NORM_EPS = 1e-6


class TransformerBlock(nn.Module):
    """A block with its norms in the branches ("pre-norm").

    ``y = x + s1 * attention(norm1(x))``, ``z = y + s2 * mlp(norm2(y))``; the factors s are 1 without layer scale.

    Args:
        embed_dim: Width of the tokens, at least 1.
        attention: Builds the attention for that width.
        hidden_dim: Width inside the perceptron, at least 1.
        layer_scale: Where the factors of the branches start; ``None`` for none.
        drop_path_rate: Share of the images for which a branch is left out in training, 0 up to 1.
        dropout: Share dropped in the perceptron in training, 0 up to 1.

    Shape:
        (batch, tokens, embed_dim), kept

    Raises:
        ValueError: An argument is out of its range.

    Source:
        Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021, https://arxiv.org/abs/2010.11929
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        attention: Callable[[int], nn.Module],
        hidden_dim: int,
        layer_scale: float | None = None,
        drop_path_rate: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.attention = attention(embed_dim)
        self.layer_scale1 = _scale(embed_dim, layer_scale)
        self.drop_path1 = DropPath(drop_path_rate)
        self.norm2 = nn.LayerNorm(embed_dim, eps=NORM_EPS)
        self.mlp = MLP(embed_dim, hidden_dim, dropout=dropout)
        self.layer_scale2 = _scale(embed_dim, layer_scale)
        self.drop_path2 = DropPath(drop_path_rate)

    def forward(self, tokens: Tensor, **options: Any) -> Tensor:
        """Return the tokens after the block; ``options`` go to the attention."""
        tokens = tokens + self.drop_path1(self.layer_scale1(self.attention(self.norm1(tokens), **options)))
        return tokens + self.drop_path2(self.layer_scale2(self.mlp(self.norm2(tokens))))

    def attention_weights(self, tokens: Tensor, *, heads: Sequence[int] | None = None, **options: Any) -> Tensor:
        """Return the weights of the attention for tokens that enter the block, (batch, len(heads), tokens, tokens)."""
        attention: Any = self.attention
        weights: Tensor = attention.attention_weights(self.norm1(tokens), heads=heads, **options)
        return weights


def _scale(embed_dim: int, layer_scale: float | None) -> nn.Module:
    return nn.Identity() if layer_scale is None else LayerScale(embed_dim, initial=layer_scale)
