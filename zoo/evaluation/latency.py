"""How long a forward pass takes and how much memory it holds."""

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from zoo.evaluation.predictions import evaluation_mode

NUM_WARMUP = 3
MIN_RUNS = 5
MAX_RUNS = 50
BYTES_PER_MIB = 2**20


class Latency(NamedTuple):
    """Time of one forward pass of a batch: the median run and the quartiles around it."""

    batch_size: int
    median_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    images_per_second: float
    num_runs: int
    num_threads: int
    device: str


def measure_latency(
    model: nn.Module,
    input_size: tuple[int, int, int],
    *,
    batch_sizes: Sequence[int] = (1, 64),
    num_threads: int | None = None,
    device: torch.device | str = "cpu",
    budget_s: float = 3.0,
) -> list[Latency]:
    """Time forward passes in eval mode, without gradients, after three that do not count.

    Args:
        model: Must already be on ``device``.
        input_size: Channels, height and width.
        batch_sizes: Each is measured by itself.
        num_threads: Threads torch computes with on the CPU while this runs, at least 1; as many as now by default.
        device: Where the model is; on CUDA each run ends with a synchronisation.
        budget_s: Seconds per batch size after which no further run starts, once 5 are done; at most 50 are.

    Returns:
        One :class:`Latency` per batch size, times in milliseconds per batch.

    Raises:
        ValueError: A batch size or the number of threads is below 1.
    """
    device = torch.device(device)
    for batch_size in batch_sizes:
        if batch_size < 1:
            raise ValueError(f"batch size ({batch_size}) must be at least 1")
    results = []
    with evaluation_mode(model), torch.inference_mode(), thread_limit(num_threads):
        for batch_size in batch_sizes:
            images = _random_images(batch_size, input_size, device)
            for _ in range(NUM_WARMUP):
                _timed_run(model, images)
            times: list[float] = []
            while len(times) < MIN_RUNS or (len(times) < MAX_RUNS and sum(times) < budget_s):
                times.append(_timed_run(model, images))
            lower, median, upper = (1000 * quartile for quartile in statistics.quantiles(times, n=4))
            results.append(
                Latency(
                    batch_size=batch_size,
                    median_ms=median,
                    lower_quartile_ms=lower,
                    upper_quartile_ms=upper,
                    images_per_second=1000 * batch_size / median,
                    num_runs=len(times),
                    num_threads=torch.get_num_threads(),
                    device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
                )
            )
    return results


def measure_peak_memory(
    model: nn.Module, input_size: tuple[int, int, int], *, batch_size: int = 1, device: torch.device | str = "cpu"
) -> float:
    """Return the most memory that a forward pass in eval mode without gradients holds at once, in MiB.

    Counted are parameters and buffers, the images, and whatever torch's allocator hands out during the pass (the
    profiler's record on the CPU, the allocator's own on CUDA). Libraries' private scratch memory, the interpreter and
    the driver are not, so the figure says what the network needs and does not depend on what ran before.

    Args:
        model: Must already be on ``device``.
        input_size: Channels, height and width.
        batch_size: At least 1.
        device: Where the model is.
    """
    device = torch.device(device)
    if batch_size < 1:
        raise ValueError(f"batch size ({batch_size}) must be at least 1")
    with evaluation_mode(model), torch.inference_mode():
        images = _random_images(batch_size, input_size, device)
        model(images)
        held = sum(storage.nbytes() for storage in _distinct_storages(model)) + images.nbytes
        peak = _cuda_peak(model, images) if device.type == "cuda" else _cpu_peak(model, images)
    return (held + peak) / BYTES_PER_MIB


@contextmanager
def thread_limit(num_threads: int | None) -> Iterator[None]:
    """Let torch compute with so many threads on the CPU; ``None`` changes nothing."""
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"num_threads ({num_threads}) must be at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _timed_run(model: nn.Module, images: torch.Tensor) -> float:
    start = time.perf_counter()
    model(images)
    if images.is_cuda:
        torch.cuda.synchronize(images.device)
    return time.perf_counter() - start


def _random_images(batch_size: int, input_size: tuple[int, int, int], device: torch.device) -> torch.Tensor:
    return torch.randn(batch_size, *input_size, generator=torch.Generator().manual_seed(0)).to(device)


def _distinct_storages(model: nn.Module) -> list[torch.UntypedStorage]:
    tensors = [*model.parameters(), *model.buffers()]
    return list({tensor.data_ptr(): tensor.untyped_storage() for tensor in tensors}.values())


def _cpu_peak(model: nn.Module, images: torch.Tensor) -> int:
    """Return the highest balance of bytes allocated minus bytes freed during one pass."""
    # Without this the profiler's library prints its start, its stop and every absent accelerator to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model(images)
    changes: list[tuple[int, int]] = []
    events: list[Any] = profiler.profiler.kineto_results.events()
    for event in events:
        if event.name() == "[memory]":
            changes.append((event.start_ns(), event.nbytes()))
    balance = peak = 0
    for _, num_bytes in sorted(changes, key=lambda change: change[0]):
        balance += num_bytes
        peak = max(peak, balance)
    return peak


def _cuda_peak(model: nn.Module, images: torch.Tensor) -> int:
    torch.cuda.synchronize(images.device)
    torch.cuda.reset_peak_memory_stats(images.device)
    before = torch.cuda.memory_allocated(images.device)
    model(images)
    torch.cuda.synchronize(images.device)
    return torch.cuda.max_memory_allocated(images.device) - before
