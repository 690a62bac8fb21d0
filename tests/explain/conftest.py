"""Networks that provably look at one place, or provably do not use their attention."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.layers.patch_embedding import PatchEmbedding

SIDE = 16
PATCH = 4
WIDTH = 32


class SpatialAttention(nn.Module):
    """A gate that opens where it is told, whatever the map holds."""

    def __init__(self, open_places: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.where(open_places, 6.0, -6.0)[None, None])

    def forward(self, feature_map: torch.Tensor) -> torch.Tensor:
        return feature_map * torch.sigmoid(self.logits)


class LooksAtRegion(nn.Module):
    """Class 1 is the brightness of a region, read through a gate that is open there; the rest adds exactly nothing."""

    def __init__(self, region: torch.Tensor) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        nn.init.constant_(self.conv.weight, 1.0)
        self.gate = SpatialAttention(region)
        self.register_buffer("region", region.float())
        self.head = nn.Linear(2, 2, bias=False)
        self.head.weight.data = torch.tensor([[0.0, 0.0], [4.0, 4.0]])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.gate(self.conv(images)) * self.region
        return self.head(features.sum((2, 3)) / self.region.sum())


class IgnoresItsAttention(nn.Module):
    """Reads a region past its gate: the gate's branch is added with a factor of exactly 0."""

    def __init__(self, region: torch.Tensor, gate_open: torch.Tensor) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        nn.init.constant_(self.conv.weight, 1.0)
        self.gate = SpatialAttention(gate_open)
        self.register_buffer("region", region.float())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.conv(images)
        features = features + 0 * self.gate(features)
        brightness = (features * self.region).sum((1, 2, 3)) / self.region.sum()
        return torch.stack([torch.zeros_like(brightness), 4 * brightness], 1)


class LooksAtPatches(nn.Module):
    """A transformer of one layer whose tokens take all from marked patches, and whose class 1 is their brightness.

    All queries are equal; only marked patches have keys. ``prefix`` tokens stand before the grid.
    """

    def __init__(self, grid: tuple[int, int], marked: list[tuple[int, int]], prefix: int) -> None:
        super().__init__()
        self.num_prefix_tokens, self.pooling = prefix, "class_token" if prefix else "mean"
        self.embedding = PatchEmbedding(3, WIDTH, patch_size=PATCH)
        with torch.no_grad():
            self.embedding.projection.weight.zero_()
            self.embedding.projection.weight[0] = 1 / (3 * PATCH**2)
        positions = torch.zeros(*grid, WIDTH)
        for row, column in marked:
            positions[row, column, -1] = 1
        self.register_buffer("positions", positions.flatten(0, 1))
        self.attention = MultiHeadSelfAttention(WIDTH, num_heads=1)
        with torch.no_grad():
            fused = self.attention.query_key_value
            fused.weight.zero_()
            fused.bias.zero_()
            fused.bias[0] = 100.0  # every query
            fused.weight[WIDTH, -1] = 1.0  # keys, of marked patches alone
            fused.weight[2 * WIDTH :] = torch.eye(WIDTH)  # values
            self.attention.projection.weight.copy_(torch.eye(WIDTH))
            self.attention.projection.bias.zero_()

    def grid_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        return self.embedding.grid_size(image_size)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.embedding(images) + self.positions
        prefix = tokens.new_zeros(len(tokens), self.num_prefix_tokens, WIDTH)
        attended = self.attention(torch.cat([prefix, tokens], 1))
        read = attended[:, 0] if self.num_prefix_tokens else attended.mean(1)
        return torch.stack([torch.zeros_like(read[:, 0]), 8 * read[:, 0]], 1)


@pytest.fixture
def region() -> torch.Tensor:
    """The lower left quadrant of an image of 16 x 16."""
    marked = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    marked[SIDE // 2 :, : SIDE // 2] = True
    return marked


@pytest.fixture
def bright_image() -> torch.Tensor:
    """One normalised image, brighter than the mean everywhere, with some texture."""
    return 0.5 + 0.2 * torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def looks_at_region(region: torch.Tensor) -> nn.Module:
    return LooksAtRegion(region).eval()


@pytest.fixture
def ignores_its_attention(region: torch.Tensor) -> nn.Module:
    return IgnoresItsAttention(region, region.flip(0, 1)).eval()


@pytest.fixture
def make_looks_at_patches() -> Callable[..., nn.Module]:
    def make(grid: tuple[int, int], marked: list[tuple[int, int]], prefix: int = 1) -> nn.Module:
        return LooksAtPatches(grid, marked, prefix).eval()

    return make
