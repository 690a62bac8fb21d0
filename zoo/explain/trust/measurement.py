"""All measures of trust for one image, from one call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from zoo.explain.heatmap import Heatmap
from zoo.explain.integrated_gradients import Completeness
from zoo.explain.methods import REFERENCE
from zoo.explain.trust.agreement import rank_agreement
from zoo.explain.trust.concentration import Concentration
from zoo.explain.trust.perturbation import Curves, moved_maps, perturb, random_maps
from zoo.explain.trust.randomisation import randomisation_agreement
from zoo.explain.trust.replacement import Replacement, measure_replacements


@dataclass(frozen=True)
class MapTrust:
    """How far one map can be trusted.

    Args:
        title: The method in words.
        curves: Deletion and insertion in the order of the map.
        moved: The same for the map laid elsewhere on the image, several times.
        agreement: Rank agreement with integrated gradients, -1 to 1.
        last_scrambled: Rank agreement with the map after the last layer's weights were scrambled.
        all_scrambled: The same after all weights were.
    """

    title: str
    curves: Curves
    moved: tuple[Curves, ...]
    agreement: float
    last_scrambled: float
    all_scrambled: float

    def beats(self, chance: tuple[Curves, ...]) -> bool:
        """Return whether the map leads every map laid elsewhere, and every order by lot."""
        return all(self.curves.lead > other.lead for other in (*self.moved, *chance))


@dataclass(frozen=True)
class Trust:
    """How far the pictures of one image can be trusted.

    Args:
        maps: Of each map, by method.
        chance: Deletion and insertion in orders drawn by lot.
        completeness: What integrated gradients add up to.
        replacements: What happens without the attention; empty for a network that has none.
        concentrations: How the attention's weights are divided.
    """

    maps: dict[str, MapTrust]
    chance: tuple[Curves, ...]
    completeness: Completeness
    replacements: tuple[Replacement, ...]
    concentrations: tuple[Concentration, ...]


def measure_trust(
    model: nn.Module,
    images: Tensor,
    class_index: int,
    heatmaps: Mapping[str, Heatmap],
    completeness: Completeness,
    concentrations: tuple[Concentration, ...],
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Trust:
    """Measure how far maps of one image can be trusted.

    Args:
        model: Maps images to logits.
        images: One image, (1, channels, height, width).
        class_index: The explained class.
        heatmaps: By method; integrated gradients must be among them.
        completeness: What those add up to.
        concentrations: How the attention's weights are divided.
        seed: Of all that is drawn by lot.
        say: Told what is measured.
    """
    if REFERENCE not in heatmaps:
        raise ValueError(f"trust is measured beside {REFERENCE}, which is not among {', '.join(heatmaps)}")
    size = (images.shape[2], images.shape[3])
    maps = {}
    for name, heatmap in heatmaps.items():
        say(f"how far to trust: {heatmap.title}")
        with torch.random.fork_rng(devices=[]):
            maps[name] = MapTrust(
                title=heatmap.title,
                curves=perturb(model, images, class_index, heatmap.values, seed=seed),
                moved=tuple(
                    perturb(model, images, class_index, moved, seed=seed)
                    for moved in moved_maps(heatmap.values, seed=seed)
                ),
                agreement=rank_agreement(heatmap, heatmaps[REFERENCE]),
                last_scrambled=randomisation_agreement(model, images, class_index, heatmap, "last", seed=seed),
                all_scrambled=randomisation_agreement(model, images, class_index, heatmap, "all", seed=seed),
            )
    chance = tuple(perturb(model, images, class_index, values, seed=seed) for values in random_maps(size, seed=seed))
    replacements = measure_replacements(model, images, class_index, seed=seed)
    return Trust(maps, chance, completeness, replacements, concentrations)
