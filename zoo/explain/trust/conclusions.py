"""What the measures of trust allow one to conclude, and what not, in plain words."""

from collections.abc import Sequence

from zoo.explain.trust.measurement import Trust

SAME_MAP = 0.5
NO_PART = 0.02
EVEN = 0.95
LARGE_GAP = 0.05


def conclude(trust: Trust) -> list[str]:
    """Return sentences for readers who know none of the measures."""
    return [
        *_about_places(trust),
        *_about_learning(trust),
        *_about_attention(trust),
        *_about_sums(trust),
        "All of this holds for this one image and this one network: it does not say that the answer is right, that a "
        "person would look at the same places, or what the network does with other images.",
    ]


def _about_places(trust: Trust) -> list[str]:
    matter = [found.title for found in trust.maps.values() if found.beats(trust.chance)]
    rest = [found.title for found in trust.maps.values() if not found.beats(trust.chance)]
    sentences = []
    if matter:
        sentences.append(
            f"The places marked by {_join(matter)} matter for this answer: over both tests, covering them and showing "
            "them alone, it hangs on them more than on other places of the same shape or on pixels drawn by lot."
        )
    if rest:
        sentences.append(
            f"The places marked by {_join(rest)} were not shown to matter more than other places: do not read "
            f"{'that map' if len(rest) == 1 else 'those maps'} as the reason for the answer."
        )
    return sentences


def _about_learning(trust: Trust) -> list[str]:
    # A comparison with NaN is false: a map that became even has changed.
    same = [found.title for found in trust.maps.values() if found.all_scrambled >= SAME_MAP]
    if not same:
        return []
    looks = "looks" if len(same) == 1 else "look"
    return [
        f"{_join(same)} {looks} much the same when the weights of the network are scrambled, so a good part of the "
        "picture comes from the image and not from what was learned."
    ]


def _about_attention(trust: Trust) -> list[str]:
    if not trust.replacements:
        return ["This network has no attention; the maps were made from its answers and slopes alone."]
    most = max(trust.replacements, key=lambda each: each.moved)
    way = "evened out" if most.how == "uniform" else "shuffled"
    if most.moved < NO_PART:
        return [
            f"The attention plays next to no part in this answer: even when it is {way}, only "
            f"{_points(most.moved)} of the probability goes to other classes. Pictures of its weights say nothing "
            "about the reason."
        ]
    changed = ", and the answer becomes another one" if most.changes_answer > 0.5 else ""
    sentences = [
        f"The attention takes part in this answer: when it is {way}, {_points(most.moved)} of the probability "
        f"goes to other classes{changed}. That does not make the places and channels with large weights the reason: "
        "skips and later layers can undo what the weights do."
    ]
    even = [found for found in trust.concentrations if found.entropy > EVEN]
    if even and len(even) == len(trust.concentrations):
        sentences.append("All its weights are nearly even, so bright spots in their pictures are small differences.")
    return sentences


def _about_sums(trust: Trust) -> list[str]:
    gap = trust.completeness.gap
    if gap <= LARGE_GAP:
        return []
    return [
        f"The pixel shares of integrated gradients miss what they should add up to by {100 * gap:.0f} %: take the "
        "comparison with them as rough."
    ]


def _points(share: float) -> str:
    return f"{100 * share:.1f} %"


def _join(titles: Sequence[str]) -> str:
    """Join titles as in a sentence.

    >>> _join(["a"]), _join(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
