import math

import pytest
import torch
from scipy.stats import spearmanr

from zoo.explain.heatmap import Heatmap
from zoo.explain.trust.agreement import rank_agreement, rank_correlation


def test_it_is_spearmans_correlation_with_ties():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randint(4, (6, 5), generator=generator).float() for _ in range(2))
    expected = spearmanr(first.flatten(), second.flatten()).statistic
    assert rank_correlation(first, second) == pytest.approx(expected)
    assert rank_correlation(first, -first) == pytest.approx(-1)


def test_an_even_map_ranks_nothing():
    assert math.isnan(rank_correlation(torch.zeros(2, 2), torch.rand(2, 2)))


def test_maps_are_compared_in_cells():
    ramp = torch.linspace(0, 1, 64).expand(64, 64)
    noisy = ramp + 0.4 * torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    heatmaps = [Heatmap("x", "X", values, is_signed=True) for values in (ramp, noisy)]
    assert rank_correlation(ramp, noisy) < 0.7
    assert rank_agreement(*heatmaps) > 0.8


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"maps of \(2, 2\) and \(2, 3\) cells cannot be compared"):
        rank_correlation(torch.zeros(2, 2), torch.zeros(2, 3))
