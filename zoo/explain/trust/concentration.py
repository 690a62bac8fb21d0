"""Are attention weights peaked, or so even that their pictures show small differences?"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.explain.gates import Gate
from zoo.explain.token_weights import TokenAttention


class Concentration(NamedTuple):
    """How a set of weights is divided.

    Args:
        name: Of the module, and what the weights are of.
        entropy: Entropy of the weights, scaled to a sum of 1, as a fraction of that of equal weights: 1 is even.
        largest: Share of the largest weight.
        num_weights: How many there are; equal weights have a share of ``1 / num_weights`` each.
    """

    name: str
    entropy: float
    largest: float
    num_weights: int


def measure_concentration(name: str, weights: Tensor) -> Concentration:
    """Return how weights are divided; several rows (..., weights) are averaged.

    >>> measure_concentration("even", torch.ones(4))
    Concentration(name='even', entropy=1.0, largest=0.25, num_weights=4)
    """
    shares = weights.double().clamp_min(0)
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    count = weights.shape[-1]
    entropy = -torch.xlogy(shares, shares).sum(-1) / (math.log(count) if count > 1 else 1)
    return Concentration(name, float(entropy.mean()), float(shares.amax(-1).mean()), count)


def concentrations(gates: tuple[Gate, ...], attention: TokenAttention | None) -> tuple[Concentration, ...]:
    """Return the division of every gate's factors, and of every layer's weights as the classifier reads them."""
    found = [measure_concentration(f"{gate.name} ({gate.kind}s)", gate.values.flatten()) for gate in gates]
    if attention is not None:
        for name, weights in zip(attention.names, attention.weights, strict=True):
            found.append(measure_concentration(f"{name} (tokens)", weights[:, attention.reading > 0]))
    return tuple(found)
