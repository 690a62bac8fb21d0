"""Layer scale: a branch that starts small, with a learned factor for each column."""

import torch
from torch import Tensor, nn

from zoo.functional.validation import check_positive_int


class LayerScale(nn.Module):
    """``x * scale``, one learned factor for each of the tokens' numbers.

    Args:
        embed_dim: Width of the tokens, at least 1.
        initial: Where the factors start, above 0; the deeper the network, the smaller.

    Shape:
        (..., embed_dim), kept

    Raises:
        ValueError: An argument is out of its range.

    >>> LayerScale(2, initial=0.5)(torch.tensor([2.0, 4.0])).tolist()
    [1.0, 2.0]

    Source:
        Touvron et al.: Going deeper with Image Transformers, ICCV 2021, https://arxiv.org/abs/2103.17239
    """

    def __init__(self, embed_dim: int, *, initial: float) -> None:
        super().__init__()
        if isinstance(initial, bool) or not isinstance(initial, int | float) or not 0 < initial < float("inf"):
            raise ValueError(f"layer_scale ({initial!r}) must be a number above 0: where the factors start")
        self.scale = nn.Parameter(torch.full((check_positive_int("embed_dim", embed_dim),), float(initial)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scale the tokens."""
        return tokens * self.scale
