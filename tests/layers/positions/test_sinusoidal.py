import math

import pytest
import torch

from zoo.layers.positions import (
    SinusoidalPositions1d,
    SinusoidalPositions2d,
    sinusoidal_table,
    sinusoidal_table_2d,
)


def test_sines_stand_in_even_columns_and_cosines_in_odd_ones() -> None:
    expected = [
        [f(position / 10_000 ** (2 * pair / 6)) for pair in range(3) for f in (math.sin, math.cos)]
        for position in range(4)
    ]
    assert torch.equal(sinusoidal_table(4, 6), torch.tensor(expected))
    assert sinusoidal_table(2, 2, base=7.0).tolist() == torch.tensor([[0, 1], [math.sin(1), math.cos(1)]]).tolist()


def test_far_positions_are_as_exact_as_near_ones() -> None:
    """Angles in float32 would be off by 1e-3 here."""
    row = sinusoidal_table(100_001, 4)[-1]
    angles = [100_000, 100_000 / 100]
    expected = torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])
    torch.testing.assert_close(row, expected, rtol=0, atol=1e-7)


def test_a_grid_has_rows_in_the_first_half_and_columns_in_the_second() -> None:
    table = sinusoidal_table_2d((2, 3), 8)
    for place, (row, column) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]):
        expected = [f(at * slower) for at in (row, column) for slower in (1, 0.01) for f in (math.sin, math.cos)]
        torch.testing.assert_close(table[place], torch.tensor(expected), rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_they_are_added_and_the_dtype_stays(dtype: torch.dtype) -> None:
    tokens = torch.ones(2, 5, 8, dtype=dtype)
    assert torch.equal(SinusoidalPositions1d(8)(tokens), tokens + sinusoidal_table(5, 8).to(dtype))


def test_prefix_tokens_are_left_as_they_are() -> None:
    tokens = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0))
    placed = SinusoidalPositions2d(8, num_prefix_tokens=2)(tokens, (3, 2))
    assert torch.equal(placed[:, :2], tokens[:, :2])
    assert torch.equal(placed[:, 2:], SinusoidalPositions2d(8)(tokens[:, 2:], (3, 2)))


def test_they_hold_no_parameter_and_no_state() -> None:
    for positions in (SinusoidalPositions1d(8), SinusoidalPositions2d(8)):
        assert not positions.state_dict()


def test_widths_and_tokens_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"embed_dim \(7\) must be even"):
        SinusoidalPositions1d(7)
    with pytest.raises(ValueError, match=r"embed_dim \(6\) must be a multiple of 4"):
        SinusoidalPositions2d(6)
    with pytest.raises(ValueError, match=r"tokens has shape \(2, 5, 6\), but must be \(batch, tokens, 8\)"):
        SinusoidalPositions1d(8)(torch.zeros(2, 5, 6))
    with pytest.raises(ValueError, match=r"must be \(batch, 7, 8\): 1 prefix tokens and a grid of 2 x 3"):
        SinusoidalPositions2d(8, num_prefix_tokens=1)(torch.zeros(2, 6, 8), (2, 3))
    for grid_size in ("23", 6, (2, 3, 4)):
        with pytest.raises(ValueError, match="must be rows and columns"):
            SinusoidalPositions2d(8)(torch.zeros(2, 6, 8), grid_size)
    with pytest.raises(ValueError, match=r"grid_size columns \(0\) must be"):
        SinusoidalPositions2d(8)(torch.zeros(2, 6, 8), (2, 0))
