"""Calibration: does a confidence of 0.8 mean that 80 % are right?"""

from typing import Literal

import torch
from torchmetrics.functional.classification import multiclass_calibration_error

NUM_BINS = 15


def expected_calibration_error(
    logits: torch.Tensor,
    targets: torch.Tensor,
    *,
    num_bins: int = NUM_BINS,
    norm: Literal["l1", "l2", "max"] = "l1",
) -> float:
    """Return the calibration error of the most likely class's probability.

    The images fall into ``num_bins`` equally wide bins of confidence; with ``n_b`` of ``N`` images in bin ``b``,
    ``l1`` is ``sum_b n_b / N * |accuracy_b - confidence_b|`` (the expected calibration error), ``l2`` the root of
    the weighted squares, ``max`` the largest difference. Softmax is taken here, in float64.

    Args:
        logits: Finite scores.
        targets: Class indices.
        num_bins: Number of bins, at least 1.
        norm: How the differences of the bins combine.

    Shape:
        - logits: ``(num_images, num_classes)``
        - targets: ``(num_images,)``

    Returns:
        A number from 0 (calibrated) to 1; always 0 with a single class, which is certain and right.

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]])  # says class 0 with a probability of 0.881, twice
    >>> round(expected_calibration_error(logits, torch.tensor([0, 1])), 3)
    0.381

    Source: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, https://arxiv.org/abs/1706.04599
    """
    num_classes = logits.shape[1]
    if num_classes == 1:
        return 0.0
    # torchmetrics takes logits that happen to lie in [0, 1] for probabilities, so it never sees logits.
    probabilities = logits.double().softmax(dim=1)
    error = multiclass_calibration_error(probabilities, targets, num_classes=num_classes, n_bins=num_bins, norm=norm)
    return float(error)
