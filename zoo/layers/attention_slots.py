"""Where a backbone may carry attention: which places get a gate, of what width, drawn from which random numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from zoo.functional.validation import check_positive_int

AttentionFactory = Callable[[int], nn.Module]
"""Builds the attention for a feature map of so many channels; all that a backbone knows of a mechanism."""


class TokenAttentionFactory(Protocol):
    """Builds the self attention of a transformer's block; the network decides what stands here, the mechanism the rest.

    What it builds maps tokens (batch, tokens, embed_dim) to such tokens, and has a method ``attention_weights``.
    """

    def __call__(self, embed_dim: int, /, *, num_heads: int, qk_norm: bool, projection_dropout: float) -> nn.Module:
        """Return a fresh module for tokens of ``embed_dim`` numbers."""


@dataclass(frozen=True)
class AttentionPlace:
    """A gate in a network: qualified name of its module, stage counted from 1, channels of the map it gates."""

    name: str
    stage: int
    channels: int


class AttentionSlots:
    """Hands attention to the blocks of the chosen stages while a backbone is built, and lists who got one.

    Each slot draws one number from the CPU's global generator, gate or no gate, and a gate is built from a stream
    seeded with it. So a seed gives the same backbone weights whatever the attention: nets to be compared start equal.

    Args:
        attention: Builds a gate from a channel count; ``None`` leaves every slot empty.
        stages: The stages, counted from 1, whose slots are filled; ``None`` fills all.

    Raises:
        ValueError: ``stages`` is no list of stages, is empty or repeats itself, or is given without attention.
    """

    def __init__(self, attention: AttentionFactory | None, stages: Sequence[int] | None = None) -> None:
        if stages is not None:
            if attention is None:
                raise ValueError(f"attention_stages ({stages!r}) has no effect without an attention")
            if isinstance(stages, str) or not isinstance(stages, Sequence) or not stages:
                raise ValueError(f"attention_stages ({stages!r}) must be a list of one or more stages")
            if len({check_positive_int("attention_stages entry", stage) for stage in stages}) != len(stages):
                raise ValueError(f"attention_stages ({stages!r}) must name each stage once")
        self._attention = attention
        self._stages = stages
        self._stages_seen: set[int] = set()
        self._places: list[AttentionPlace] = []

    def slot(self, name: str, stage: int) -> AttentionFactory | None:
        """Return the factory for the slot ``name`` in ``stage``, or ``None`` when it stays empty."""
        self._stages_seen.add(stage)
        seed = int(torch.randint(2**31, (), device="cpu"))
        attention = self._attention
        if attention is None or (self._stages is not None and stage not in self._stages):
            return None

        def build(channels: int) -> nn.Module:
            self._places.append(AttentionPlace(name, stage, channels))
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return attention(channels)

        return build

    def places(self) -> tuple[AttentionPlace, ...]:
        """Return the filled slots in the order of the network.

        Raises:
            ValueError: A chosen stage has no slot in this network.
        """
        for stage in self._stages or ():
            if stage not in self._stages_seen:
                known = ", ".join(map(str, sorted(self._stages_seen)))
                raise ValueError(
                    f"attention_stages: stage {stage} has no place for attention; stages with one: {known}"
                )
        return tuple(self._places)
