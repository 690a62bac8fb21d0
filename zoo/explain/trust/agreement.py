"""Do two maps rank the places of an image alike?"""

import math

import numpy as np
import torch
from torch import Tensor

from zoo.explain.heatmap import Heatmap


def rank_agreement(first: Heatmap, second: Heatmap) -> float:
    """Return Spearman's rank correlation of two maps over at most 16 x 16 cells, NaN where one of them is even.

    >>> ramp = torch.arange(4.0).view(2, 2)
    >>> rank_agreement(Heatmap("a", "A", ramp), Heatmap("b", "B", ramp**2))
    1.0
    """
    return rank_correlation(first.cells(), second.cells())


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Return Spearman's rank correlation, NaN where all values of one side are equal.

    Raises:
        ValueError: The shapes differ.
    """
    from scipy.stats import rankdata

    if first.shape != second.shape:
        raise ValueError(f"maps of {tuple(first.shape)} and {tuple(second.shape)} cells cannot be compared")
    ranks = [rankdata(np.asarray(torch.as_tensor(values).double().flatten())) for values in (first, second)]
    centred = [each - each.mean() for each in ranks]
    scale = math.sqrt(float((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return math.nan if scale == 0 else float(np.clip((centred[0] * centred[1]).sum() / scale, -1, 1))
