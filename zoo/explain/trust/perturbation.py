"""Deletion and insertion: does the answer go, and come back, with the places that a map marks?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.explain.gradients import predict

NUM_STEPS = 12
NUM_CHANCE = 4


@dataclass(frozen=True)
class Curves:
    """The probability of a class while pixels are covered, and while they are shown, the most important first.

    Args:
        fractions: Of the pixels, from 0 to 1.
        deletion: Probability when so many are covered.
        insertion: Probability when only so many are shown.
    """

    fractions: tuple[float, ...]
    deletion: tuple[float, ...]
    insertion: tuple[float, ...]

    @property
    def deletion_area(self) -> float:
        """Area under the deletion curve, 0 to 1; small when the marked places matter."""
        return _area(self.fractions, self.deletion)

    @property
    def insertion_area(self) -> float:
        """Area under the insertion curve, 0 to 1; large when the marked places matter."""
        return _area(self.fractions, self.insertion)

    @property
    def lead(self) -> float:
        """Insertion area minus deletion area."""
        return self.insertion_area - self.deletion_area


def _area(fractions: tuple[float, ...], values: tuple[float, ...]) -> float:
    return float(torch.trapezoid(torch.tensor(values).double(), torch.tensor(fractions).double()))


def perturb(
    model: nn.Module, images: Tensor, class_index: int, values: Tensor, *, seed: int, num_steps: int = NUM_STEPS
) -> Curves:
    """Cover and show the pixels of an image in the order of a map.

    Covered pixels have the mean colour, zero after normalisation. Equal values follow each other by lot.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The class whose probability is followed.
        values: The map, (height, width).
        seed: Of the lot.
        num_steps: Steps from no pixel to all, at least 1.

    Source:
        Petsiuk, Das, Saenko: RISE: Randomized Input Sampling for Explanation of Black-box Models, BMVC 2018,
        https://arxiv.org/abs/1806.07421
    """
    if num_steps < 1:
        raise ValueError(f"num_steps ({num_steps}) must be at least 1")
    if values.shape != images.shape[2:]:
        raise ValueError(f"the map has {tuple(values.shape)} pixels, the image {tuple(images.shape[2:])}")
    ranks = _ranks(values.flatten(), seed).view(values.shape).to(images.device)
    counts = [round(step * values.numel() / num_steps) for step in range(num_steps + 1)]
    is_first = torch.stack([ranks < count for count in counts]).unsqueeze(1)
    covered, shown = images * ~is_first, images * is_first
    probabilities = predict(model, torch.cat([covered, shown])).softmax(1)[:, class_index].tolist()
    fractions = tuple(count / values.numel() for count in counts)
    return Curves(fractions, tuple(probabilities[: len(counts)]), tuple(probabilities[len(counts) :]))


def _ranks(values: Tensor, seed: int) -> Tensor:
    """Return the position of each value in descending order, ties by lot."""
    lot = torch.randperm(values.numel(), generator=torch.Generator().manual_seed(seed))
    order = lot[values[lot].argsort(descending=True, stable=True)]
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(values.numel())
    return ranks


def moved_maps(values: Tensor, *, count: int = NUM_CHANCE, seed: int) -> list[Tensor]:
    """Return a map shifted around the image by random distances: as coarse and as peaked, but in the wrong places.

    Each shift is at least a quarter of a side along rows or columns.
    """
    generator = torch.Generator().manual_seed(seed)
    moved = []
    for _ in range(count):
        shifts = [_draw_shift(side, generator) for side in values.shape]
        moved.append(values.roll(shifts, (0, 1)))
    return moved


def _draw_shift(side: int, generator: torch.Generator) -> int:
    low, high = side // 4, max(side // 4 + 1, side - side // 4)
    return int(torch.randint(low, high, (), generator=generator))


def random_maps(size: tuple[int, int], *, count: int = NUM_CHANCE, seed: int) -> list[Tensor]:
    """Return maps whose pixels are drawn by lot, each by itself."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(size, generator=generator) for _ in range(count)]
