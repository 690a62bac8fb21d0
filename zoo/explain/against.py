"""Two networks and the same images: where they differ, and which one wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from zoo.explain.explanation import Explanation
from zoo.explain.heatmap import MAX_CELLS
from zoo.explain.trust.agreement import rank_correlation

Winner = Literal["first", "second", "neither"]


@dataclass(frozen=True)
class Pair:
    """Two networks' answers to one image, explained for the same class.

    Args:
        first: What the first network answers.
        second: What the second one answers; of the same image.
        label: Name of the true class; ``None`` where it is not known.
    """

    first: Explanation
    second: Explanation
    label: str | None = None

    def __post_init__(self) -> None:
        if self.first.class_name != self.second.class_name:
            raise ValueError(
                f"{self.first.network} is explained for {self.first.class_name}, but {self.second.network} for "
                f"{self.second.class_name}"
            )

    @property
    def title(self) -> str:
        """What the image is called."""
        return self.first.title

    @property
    def methods(self) -> list[str]:
        """The maps that both networks have."""
        return [name for name in self.first.heatmaps if name in self.second.heatmaps]

    @property
    def answers(self) -> tuple[str, str]:
        """Names of the classes that the networks find most likely."""
        return self.first.class_names[self.first.answer], self.second.class_names[self.second.answer]

    @property
    def certainties(self) -> tuple[float, float]:
        """The probabilities that the networks give to the explained class."""
        first, second = (float(each.probabilities[each.class_index]) for each in (self.first, self.second))
        return first, second

    @property
    def winner(self) -> Winner | None:
        """Which network is right where the other is wrong; ``None`` where the true class is not known."""
        if self.label is None:
            return None
        right = [answer == self.label for answer in self.answers]
        if right[0] == right[1]:
            return "neither"
        return "first" if right[0] else "second"

    def agreement(self, method: str) -> float:
        """Return how alike the two networks' maps rank the places that both see, -1 to 1; NaN where one is even."""
        laid = [torch.from_numpy(_in_cells(each)) for each in _laid(self, method)]
        both = ~(laid[0].isnan() | laid[1].isnan())
        return rank_correlation(laid[0][both], laid[1][both]) if both.any() else math.nan

    def difference(self, method: str) -> npt.NDArray[np.float32]:
        """Return where the first network's map has more of its mass than the second's, in the image's pixels.

        Both maps sum to 1 over the places that both networks see; elsewhere is NaN.
        """
        first, second = _laid(self, method)
        seen = ~(np.isnan(first) | np.isnan(second))
        difference = np.full(first.shape, np.nan, np.float32)
        difference[seen] = _shares(first[seen]) - _shares(second[seen])
        return difference


def _laid(pair: Pair, method: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    first, second = (each.placement.to_image(each.heatmaps[method].values) for each in (pair.first, pair.second))
    return first, second


def _in_cells(laid: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Average a map in the image's pixels over at most 16 x 16 cells; a cell with an unseen pixel is NaN."""
    rows, columns = (np.array_split(np.arange(size), min(size, MAX_CELLS)) for size in laid.shape)
    return np.array([[laid[np.ix_(row, column)].mean(dtype=np.float64) for column in columns] for row in rows])


def _shares(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    positive = values.astype(np.float64).clip(0)
    total = positive.sum()
    return positive / total if total > 0 else np.full_like(positive, 1 / positive.size)


def find_label(folder_name: str, *class_names: Sequence[str]) -> str | None:
    """Return the class that a folder of images is named after, if it is one of every network's.

    >>> find_label("French_horn", ["tench", "french horn"], ["french horn"])
    'french horn'
    """
    named = [name for name in class_names[0] if _normal(name) == _normal(folder_name)]
    return named[0] if named and all(named[0] in names for names in class_names) else None


def summarise(pairs: Sequence[Pair]) -> list[str]:
    """Return sentences: who is right how often, on which images one wins, and where they look at different places.

    Raises:
        ValueError: There is no pair.
    """
    if not pairs:
        raise ValueError("there is no image to compare two networks on")
    first, second = pairs[0].first.network, pairs[0].second.network
    differing = [pair.title for pair in pairs if pair.answers[0] != pair.answers[1]]
    sentences = [
        f"{first} and {second} answer differently on {len(differing)} of {_images(len(pairs))}{_list(differing)}."
    ]
    known = [pair for pair in pairs if pair.label is not None]
    if known:
        right = [sum(pair.answers[side] == pair.label for pair in known) for side in (0, 1)]
        sentences.append(
            f"Of {_images(len(known))} whose class is known, {first} is right on {right[0]} and {second} on {right[1]}."
        )
        for winner, name in (("first", first), ("second", second)):
            won = [pair.title for pair in known if pair.winner == winner]
            if won:
                sentences.append(f"{name} alone is right on {_images(len(won))}{_list(won)}.")
    else:
        sentences.append("Which one wins is not known: no image lies in a folder named after a class of both.")
    for method in pairs[0].methods:
        agreements = {pair.title: pair.agreement(method) for pair in pairs if method in pair.methods}
        ranked = {title: value for title, value in agreements.items() if not math.isnan(value)}
        if ranked:
            least = min(ranked, key=lambda title: ranked[title])
            mean = sum(ranked.values()) / len(ranked)
            sentences.append(
                f"{pairs[0].first.heatmaps[method].title}: the two rank the places alike by {mean:+.2f} on average (1 "
                f"is the same, 0 unrelated), least on {least} ({ranked[least]:+.2f})."
            )
    if len(known) < 100:
        sentences.append(
            "So few images do not tell which network is better; zoo compare measures that on a whole test set, over "
            "several seeds."
        )
    return sentences


def _normal(name: str) -> str:
    return name.casefold().replace("_", " ")


def _images(count: int) -> str:
    return f"{count} image{'' if count == 1 else 's'}"


def _list(titles: Sequence[str], most: int = 8) -> str:
    if not titles:
        return ""
    return f": {', '.join(titles[:most])}{', ...' if len(titles) > most else ''}"
