import math

import pytest
import torch

from zoo.functional.rotation import rotate
from zoo.layers.positions import RotaryPositions2d


def test_half_of_the_pairs_turn_with_the_row_and_the_others_with_the_column() -> None:
    rotation = RotaryPositions2d(8, base=16.0)((2, 3))
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    angles = [[row, row / 4, column, column / 4] for row, column in places]
    torch.testing.assert_close(rotation.cosine, torch.tensor([[math.cos(a) for a in row] for row in angles]))
    torch.testing.assert_close(rotation.sine, torch.tensor([[math.sin(a) for a in row] for row in angles]))


def test_scores_depend_on_the_offset_alone() -> None:
    query, key = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = RotaryPositions2d(8)((4, 5))
    turned = [rotate(vector.expand(1, 1, 20, 8), rotation)[0, 0] for vector in (query, key)]
    scores = (turned[0] @ turned[1].T).reshape(4, 5, 4, 5)
    torch.testing.assert_close(scores[1:, 2:, 1:, 2:], scores[:-1, :-2, :-1, :-2], rtol=0, atol=1e-6)
    assert not torch.isclose(scores[0, 0, 1, 0], scores[0, 0, 0, 1])
    torch.testing.assert_close(turned[0].norm(dim=-1), query.norm().expand(20), rtol=1e-6, atol=0)


def test_prefix_tokens_are_not_turned() -> None:
    tokens = torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    turned = rotate(tokens, RotaryPositions2d(8, num_prefix_tokens=2)((2, 3)))
    assert torch.equal(turned[:, :, :2], tokens[:, :, :2])
    assert torch.equal(turned[:, :, 2:], rotate(tokens[:, :, 2:], RotaryPositions2d(8)((2, 3))))


def test_a_rotation_of_another_grid_or_width_is_refused() -> None:
    rotation = RotaryPositions2d(8)((2, 3))
    with pytest.raises(ValueError, match="made for 6 tokens and head_dim 8, not for 7 and 8"):
        rotate(torch.zeros(1, 1, 7, 8), rotation)
    with pytest.raises(ValueError, match="made for 6 tokens and head_dim 8, not for 6 and 12"):
        rotate(torch.zeros(1, 1, 6, 12), rotation)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 6}, r"head_dim \(6\) must be a multiple of 4"),
        ({"head_dim": 8, "base": 1}, r"base \(1\) must be a number above 1"),
        ({"head_dim": 8, "base": math.nan}, r"base \(nan\)"),
        ({"head_dim": 8, "num_prefix_tokens": 1.0}, r"num_prefix_tokens \(1.0\)"),
    ],
)
def test_options_out_of_range_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RotaryPositions2d(**options)
