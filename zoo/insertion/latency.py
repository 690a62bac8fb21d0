"""What inserted gates cost in time: the network beside a copy without them, in turns."""

import copy
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from zoo.functional.validation import check_positive_int
from zoo.insertion.attachment import detach, inserted_gates
from zoo.insertion.tracing import example_for, undisturbed

NUM_WARMUP = 2
MIN_ROUNDS = 3


@dataclass(frozen=True)
class LatencyRatio:
    """Time of a forward pass with gates as a multiple of that without.

    Args:
        plain_ms: Median time without gates, in milliseconds.
        gated_ms: Median time with gates.
        ratio: Median of the ratios, each of two passes that ran side by side.
        lowest_ratio: Smallest of them.
        highest_ratio: Largest of them.
        rounds: Pairs of passes.
        num_threads: Threads torch computed with on the CPU.
        device: Where the network is.
    """

    plain_ms: float
    gated_ms: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    rounds: int
    num_threads: int
    device: str

    def __str__(self) -> str:
        return (
            f"{self.ratio:.3f} x the plain network ({self.lowest_ratio:.3f} to {self.highest_ratio:.3f} over "
            f"{self.rounds} rounds; {self.plain_ms:.2f} ms and {self.gated_ms:.2f} ms, {self.device}, "
            f"{self.num_threads} threads)"
        )


def measure_latency_ratio(model: nn.Module, example_input: Any = None, *, rounds: int = 11) -> LatencyRatio:
    """Time a network and a copy of it without its inserted gates, in turns: plain, gated, gated, plain.

    A machine that gets slower or busier then touches both alike. The passes run in eval mode without gradients.

    Args:
        model: A network with inserted gates.
        example_input: What it is called with; by default one random image of the size the network is made for.
        rounds: Pairs of passes, at least 3, after two that do not count.

    Raises:
        ValueError: Fewer than 3 rounds, or no inserted gate.
    """
    if check_positive_int("rounds", rounds) < MIN_ROUNDS:
        raise ValueError(f"rounds ({rounds}) must be at least {MIN_ROUNDS}")
    plain = copy.deepcopy(model)
    gates = list(inserted_gates(plain))
    if not gates:
        raise ValueError("the model has no inserted attention whose cost could be measured")
    for gate in gates:
        detach(plain, gate)
    example = example_for(model, example_input)
    times: dict[bool, list[float]] = {False: [], True: []}
    with undisturbed(model), undisturbed(plain):
        for number in range(-NUM_WARMUP, rounds):
            for is_gated in (False, True) if number % 2 == 0 else (True, False):
                elapsed = _time_pass(model if is_gated else plain, example)
                if number >= 0:
                    times[is_gated].append(elapsed)
    ratios = [gated / bare for bare, gated in zip(times[False], times[True], strict=True)]
    device = next(model.parameters()).device
    return LatencyRatio(
        plain_ms=1000 * statistics.median(times[False]),
        gated_ms=1000 * statistics.median(times[True]),
        ratio=statistics.median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        rounds=rounds,
        num_threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    )


def _time_pass(model: nn.Module, example: tuple[Any, ...]) -> float:
    started = time.perf_counter()
    model(*example)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started
