import math

import pytest
import torch

from zoo.functional.rotation import Rotation, rotate


def test_pairs_of_columns_are_turned_and_lengths_kept() -> None:
    angles = torch.tensor([[0.0, math.pi / 2], [math.pi, math.pi / 6]])
    tensor = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 0.0]])[None, None]
    turned = rotate(tensor, Rotation(angles.cos(), angles.sin()))
    expected = torch.tensor([[1.0, 2.0, -4.0, 3.0], [-1.0, -2.0, math.sqrt(3) / 2, 0.5]])[None, None]
    torch.testing.assert_close(turned, expected)
    torch.testing.assert_close(turned.norm(dim=-1), tensor.norm(dim=-1))


def test_half_precision_stays_and_is_turned_in_float32() -> None:
    angles = torch.tensor([[0.7]])
    tensor = torch.tensor([[[[1.0, 3.0]]]], dtype=torch.bfloat16)
    turned = rotate(tensor, Rotation(angles.cos(), angles.sin()))
    assert turned.dtype == torch.bfloat16
    exact = rotate(tensor.double(), Rotation(angles.double().cos(), angles.double().sin()))
    assert torch.equal(turned, exact.bfloat16())


def test_a_rotation_of_other_tokens_is_refused() -> None:
    rotation = Rotation(torch.ones(5, 2), torch.zeros(5, 2))
    with pytest.raises(ValueError, match="made for 5 tokens and head_dim 4, not for 6 and 4"):
        rotate(torch.zeros(1, 1, 6, 4), rotation)
    with pytest.raises(ValueError, match="made for 5 tokens and head_dim 4, not for 5 and 8"):
        rotate(torch.zeros(1, 1, 5, 8), rotation)
