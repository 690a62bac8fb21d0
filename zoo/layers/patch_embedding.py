"""From an image to tokens: patches mapped at once, or a few convolutions and poolings."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from zoo.functional.validation import check_positive_int
from zoo.layers.conv_norm_act import convolution


class PatchEmbedding(nn.Module):
    """Cuts an image into square patches side by side and maps each to a token by one linear map.

    The map starts from ``N(0, 1 / (in_channels * patch_size^2))`` and a bias of 0, so that tokens have the variance of
    the pixels.

    Args:
        in_channels: Channels of the image, at least 1.
        embed_dim: Width of the tokens, at least 1.
        patch_size: Side of a patch in pixels, at least 1.

    Shape:
        (batch, in_channels, height, width) -> (batch, rows * columns, embed_dim), row by row

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> PatchEmbedding(3, 8, patch_size=4)(torch.zeros(2, 3, 8, 12)).shape
    torch.Size([2, 6, 8])
    """

    def __init__(self, in_channels: int, embed_dim: int, *, patch_size: int) -> None:
        super().__init__()
        check_positive_int("in_channels", in_channels)
        self.patch_size = check_positive_int("patch_size", patch_size)
        self.projection = nn.Conv2d(in_channels, check_positive_int("embed_dim", embed_dim), patch_size, patch_size)
        nn.init.trunc_normal_(self.projection.weight, std=(in_channels * patch_size**2) ** -0.5)
        assert self.projection.bias is not None
        nn.init.zeros_(self.projection.bias)

    def grid_size(self, image_size: Sequence[int]) -> tuple[int, int]:
        """Return rows and columns of the patches of an image.

        Args:
            image_size: Height and width in pixels.

        Raises:
            ValueError: One of them is no multiple of the patches' side.

        >>> PatchEmbedding(3, 8, patch_size=16).grid_size((224, 320))
        (14, 20)
        """
        for label, pixels in zip(("height", "width"), image_size, strict=True):
            if pixels < self.patch_size or pixels % self.patch_size:
                below = pixels // self.patch_size * self.patch_size
                ways = f"crop it to {below} or " if below else ""
                raise ValueError(
                    f"the image's {label} ({pixels}) must be a multiple of the patch size ({self.patch_size}): "
                    f"{ways}scale it to {below + self.patch_size}"
                )
        height, width = image_size
        return height // self.patch_size, width // self.patch_size

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of the images."""
        tokens: Tensor = self.projection(images)
        return tokens.flatten(2).transpose(1, 2)


class ConvolutionalEmbedding(nn.Module):
    """Convolutions of 3x3, each followed by a ReLU and a max pooling that halves the sides; every pixel is a token.

    Sides are rounded up when halved, so that images of any size have tokens.

    Args:
        in_channels: Channels of the image, at least 1.
        embed_dim: Width of the tokens, at least 1.
        num_layers: Convolutions, at least 1; all but the last have ``hidden_channels``.
        hidden_channels: At least 1.

    Shape:
        (batch, in_channels, height, width) -> (batch, rows * columns, embed_dim), row by row

    Raises:
        ValueError: An argument is out of its range.

    >>> import torch
    >>> ConvolutionalEmbedding(3, 8, num_layers=2)(torch.zeros(2, 3, 32, 30)).shape
    torch.Size([2, 64, 8])

    Source:
        Hassani et al.: Escaping the Big Data Paradigm with Compact Transformers, 2021,
        https://arxiv.org/abs/2104.05704, section 3.3
    """

    def __init__(self, in_channels: int, embed_dim: int, *, num_layers: int = 1, hidden_channels: int = 64) -> None:
        super().__init__()
        check_positive_int("in_channels", in_channels)
        check_positive_int("embed_dim", embed_dim)
        self.num_layers = check_positive_int("num_layers", num_layers)
        widths = [in_channels, *[check_positive_int("hidden_channels", hidden_channels)] * (num_layers - 1), embed_dim]
        self.layers = nn.Sequential()
        for width, next_width in pairwise(widths):
            self.layers.extend([convolution(width, next_width, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)])

    def grid_size(self, image_size: Sequence[int]) -> tuple[int, int]:
        """Return rows and columns of the tokens of an image.

        Args:
            image_size: Height and width in pixels.

        >>> ConvolutionalEmbedding(3, 8).grid_size((33, 1))
        (17, 1)
        """
        rows, columns = image_size
        for _ in range(self.num_layers):
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
        return rows, columns

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of the images."""
        features: Tensor = self.layers(images)
        return features.flatten(2).transpose(1, 2)
