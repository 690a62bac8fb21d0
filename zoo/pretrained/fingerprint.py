"""The logits of a fixed input: they tell whether today's code still computes what the weights were trained in."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from zoo.models.captioner import with_fixed_words

NUM_LOGITS = 16
TOLERANCE = 1e-4


def fingerprint_input(input_size: tuple[int, int, int]) -> torch.Tensor:
    """Return the fixed image of the fingerprint: element ``i`` is ``(7919 i mod 1024) / 512 - 1``, exact in float32.

    Shape:
        - output: ``(1, channels, height, width)``
    """
    channels, height, width = input_size
    positions = torch.arange(channels * height * width, dtype=torch.int64)
    return ((7919 * positions % 1024) / 512 - 1).float().reshape(1, channels, height, width)


def take_fingerprint(model: nn.Module, input_size: tuple[int, int, int]) -> dict[str, Any]:
    """Return shape of the fixed input, the first logits it gives in float32 on the CPU, and the tolerance."""
    replica = copy.deepcopy(model).cpu().float().eval()
    with torch.inference_mode():
        logits = with_fixed_words(replica)(fingerprint_input(input_size))[0, :NUM_LOGITS]
    if not logits.isfinite().all():
        raise ValueError("the model gives NaN or infinite logits for the fixed input: its weights are broken")
    rounded = [float(f"{logit:.9g}") for logit in logits.tolist()]
    return {"input": list(input_size), "logits": rounded, "tolerance": TOLERANCE}


def compare_fingerprint(model: nn.Module, fingerprint: Mapping[str, Any]) -> None:
    """Raise ValueError when the model answers the fixed input otherwise than the fingerprint says.

    The largest difference of a logit may be ``tolerance`` times the largest logit, or times 1 where that is smaller.
    """
    expected = torch.tensor(fingerprint["logits"], dtype=torch.float64)
    measured = torch.tensor(take_fingerprint(model, tuple(fingerprint["input"]))["logits"], dtype=torch.float64)
    if measured.shape != expected.shape:
        raise ValueError(f"the fingerprint has {len(expected)} logits, the model gives {len(measured)}")
    difference = float((measured - expected).abs().max())
    allowed = fingerprint["tolerance"] * max(1.0, float(expected.abs().max()))
    if difference > allowed:
        raise ValueError(
            f"the logits of the fixed input differ from the card's by {difference:.3g}, more than {allowed:.3g}: "
            "the code no longer computes what these weights were trained in"
        )
