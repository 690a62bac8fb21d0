"""Positions: what tells a token where it stands, added to tokens, added to scores, or turned into queries and keys."""

from zoo.layers.positions.learned import LearnedPositions, resize_grid, split_positions
from zoo.layers.positions.relative import RelativePositionBias1d, RelativePositionBias2d
from zoo.layers.positions.rotary import RotaryPositions2d
from zoo.layers.positions.sinusoidal import (
    SinusoidalPositions1d,
    SinusoidalPositions2d,
    sinusoidal_table,
    sinusoidal_table_2d,
)

__all__ = [
    "LearnedPositions",
    "RelativePositionBias1d",
    "RelativePositionBias2d",
    "RotaryPositions2d",
    "SinusoidalPositions1d",
    "SinusoidalPositions2d",
    "resize_grid",
    "sinusoidal_table",
    "sinusoidal_table_2d",
    "split_positions",
]
