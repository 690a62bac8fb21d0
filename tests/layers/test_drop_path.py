"""Stochastic depth: whole images, the right share, the same mean, nothing in evaluation."""

import pytest
import torch

from zoo.layers.drop_path import DropPath


def test_an_image_is_dropped_whole_or_scaled() -> None:
    torch.manual_seed(0)
    branch = torch.randn(400, 3, 5)
    output = DropPath(0.25)(branch)
    dropped = output.flatten(1).eq(0).all(1)
    assert 70 <= int(dropped.sum()) <= 130
    torch.testing.assert_close(output[~dropped], branch[~dropped] / 0.75)


def test_the_mean_of_a_branch_is_kept() -> None:
    torch.manual_seed(0)
    assert DropPath(0.5)(torch.ones(20_000, 1)).mean().item() == pytest.approx(1, abs=0.03)


def test_nothing_is_dropped_in_evaluation_nor_at_rate_zero() -> None:
    branch = torch.randn(8, 3)
    assert DropPath(0.9).eval()(branch) is branch
    assert DropPath(0.0)(branch) is branch


def test_the_draw_comes_from_torchs_generator_and_keeps_the_dtype() -> None:
    branch = torch.ones(64, 2, dtype=torch.bfloat16)
    torch.manual_seed(3)
    first = DropPath(0.5)(branch)
    torch.manual_seed(3)
    assert torch.equal(DropPath(0.5)(branch), first)
    assert first.dtype == torch.bfloat16


@pytest.mark.parametrize("rate", [1.0, -0.1, True, "0.1"])
def test_a_rate_that_is_no_share_is_refused(rate) -> None:
    with pytest.raises(ValueError, match="rate"):
        DropPath(rate)
