"""Occlusion: by how much the logit falls when a square of the image is covered."""

import math

import torch
from torch import Tensor, nn

from zoo.explain.gradients import check_image, predict
from zoo.explain.heatmap import Heatmap


def occlusion(
    model: nn.Module, images: Tensor, class_index: int, *, side: int | None = None, stride: int | None = None
) -> Heatmap:
    """Return the mean fall of the logit of a class over all squares that cover a pixel.

    Squares are filled with the mean colour, zero after normalisation; the last ones of a row or column end at the
    border, so that every pixel is covered.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The class.
        side: Of a square in pixels, at least 1; ``None`` for a quarter of the image's shorter side.
        stride: From square to square in pixels, 1 to ``side``; ``None`` for half of ``side``.

    Raises:
        ValueError: A size is out of its range.

    Source:
        Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014, https://arxiv.org/abs/1311.2901
    """
    check_image(images)
    height, width = images.shape[2:]
    shorter = min(height, width)
    side = max(1, shorter // 4) if side is None else side
    stride = max(1, side // 2) if stride is None else stride
    if not 1 <= side <= shorter:
        raise ValueError(f"side ({side}) must be from 1 to the image's shorter side, {shorter}")
    if not 1 <= stride <= side:
        raise ValueError(
            f"stride ({stride}) must be from 1 to side ({side}), or pixels between squares are never covered"
        )
    corners = [(top, left) for top in _starts(height, side, stride) for left in _starts(width, side, stride)]
    whole = float(predict(model, images)[0, class_index])
    falls, counts = torch.zeros(height, width), torch.zeros(height, width)
    for part in (corners[start : start + 32] for start in range(0, len(corners), 32)):
        covered = images.repeat(len(part), 1, 1, 1)
        for number, (top, left) in enumerate(part):
            covered[number, :, top : top + side, left : left + side] = 0
        for (top, left), logit in zip(part, predict(model, covered)[:, class_index].tolist(), strict=True):
            falls[top : top + side, left : left + side] += whole - logit
            counts[top : top + side, left : left + side] += 1
    return Heatmap("occlusion", "Occlusion", falls / counts, is_signed=True)


def _starts(length: int, side: int, stride: int) -> list[int]:
    """Return where squares begin, evenly spaced, the last one ending at the border.

    >>> _starts(10, 4, 4)
    [0, 3, 6]
    """
    count = math.ceil((length - side) / stride) + 1
    return [round(number * (length - side) / max(1, count - 1)) for number in range(count)]
