"""Self attention alone does not know the order of the tokens; every scheme of positions tells it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from zoo.attention.token.multi_head import MultiHeadSelfAttention
from zoo.layers.positions import (
    LearnedPositions,
    RelativePositionBias1d,
    RelativePositionBias2d,
    RotaryPositions2d,
    SinusoidalPositions1d,
    SinusoidalPositions2d,
)

GRID = (3, 4)
PREFIX = 1
ORDER = torch.randperm(12, generator=torch.Generator().manual_seed(1)) + PREFIX


def attend(scheme: str, tokens: Tensor) -> Tensor:
    torch.manual_seed(0)
    attention = MultiHeadSelfAttention(64, num_heads=2).double()
    added: dict[str, Callable[[], Tensor]] = {
        "sinusoidal 1-D": lambda: SinusoidalPositions1d(64)(tokens),
        "sinusoidal 2-D": lambda: SinusoidalPositions2d(64, num_prefix_tokens=PREFIX)(tokens, GRID),
        "learned": lambda: LearnedPositions(64, grid_size=GRID, num_prefix_tokens=PREFIX).double()(tokens),
    }
    told: dict[str, Callable[[], dict]] = {
        "relative 1-D": lambda: {"bias": RelativePositionBias1d(2, max_distance=20)(tokens.shape[1])},
        "relative 2-D": lambda: {"bias": RelativePositionBias2d(2, GRID, num_prefix_tokens=PREFIX)()},
        "rotary 2-D": lambda: {"rotation": RotaryPositions2d(32, num_prefix_tokens=PREFIX)(GRID)},
    }
    return attention(added[scheme]() if scheme in added else tokens, **(told[scheme]() if scheme in told else {}))


def moved(scheme: str) -> tuple[Tensor, Tensor]:
    """The output for tokens that changed places, and the output whose tokens changed places."""
    tokens = torch.randn(2, 13, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.cat([torch.arange(PREFIX), ORDER])
    return attend(scheme, tokens[:, order]), attend(scheme, tokens)[:, order]


def test_without_positions_the_output_changes_places_with_the_tokens() -> None:
    torch.testing.assert_close(*moved("none"), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "scheme", ["sinusoidal 1-D", "sinusoidal 2-D", "learned", "relative 1-D", "relative 2-D", "rotary 2-D"]
)
def test_with_positions_it_does_not(scheme: str) -> None:
    mine, theirs = moved(scheme)
    assert (mine - theirs).norm() > 1e-3 * theirs.norm()
    # What differs is the positions alone: the same order gives the same output.
    assert torch.equal(*(attend(scheme, torch.ones(1, 13, 64, dtype=torch.float64)) for _ in range(2)))
