import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from zoo.evaluation.latency import MIN_RUNS, NUM_WARMUP, measure_latency, measure_peak_memory, thread_limit

MIB = (1, 512, 512)
"""An image of exactly one MiB in float32."""


class Counting(nn.Module):
    """Remembers what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, bool, bool]] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls.append((len(images), torch.get_num_threads(), self.training, torch.is_grad_enabled()))
        return images


def test_each_batch_size_is_warmed_up_and_timed_in_eval_mode_with_the_threads_stated() -> None:
    model = Counting()
    before = torch.get_num_threads()
    single, triple = measure_latency(model, (3, 4, 4), batch_sizes=(1, 3), num_threads=2, budget_s=0)
    assert torch.get_num_threads() == before
    assert model.training
    assert model.calls == [(size, 2, False, False) for size in (1, 3) for _ in range(NUM_WARMUP + MIN_RUNS)]
    assert (single.batch_size, triple.batch_size) == (1, 3)
    assert single.num_threads == 2
    assert single.num_runs == MIN_RUNS
    assert single.device == "cpu"


def test_quartiles_surround_the_median_and_the_rate_follows_from_it() -> None:
    (timing,) = measure_latency(nn.Linear(64, 64), (1, 64, 64), batch_sizes=(8,))
    assert 0 < timing.lower_quartile_ms <= timing.median_ms <= timing.upper_quartile_ms
    assert timing.images_per_second == pytest.approx(8000 / timing.median_ms)


def test_a_pass_that_waits_is_measured_as_long_as_it_waits() -> None:
    class Waiting(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:

            time.sleep(0.02)
            return images

    (timing,) = measure_latency(Waiting(), (1, 1, 1), batch_sizes=(1,), budget_s=0)
    assert 20 <= timing.median_ms < 200


@pytest.mark.parametrize("num_threads", [0, -1])
def test_fewer_than_one_thread_is_refused(num_threads: int) -> None:
    with (
        pytest.raises(ValueError, match=rf"num_threads \({num_threads}\) must be at least 1"),
        thread_limit(num_threads),
    ):
        pass


def test_a_batch_size_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch size \(0\) must be at least 1"):
        measure_latency(nn.Identity(), (1, 1, 1), batch_sizes=(0,))
    with pytest.raises(ValueError, match=r"batch size \(0\) must be at least 1"):
        measure_peak_memory(nn.Identity(), (1, 1, 1), batch_size=0)


class Chain(nn.Module):
    """At most image, two intermediate maps and nothing else live at once."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            images = images.neg()
        return images


class Hoard(nn.Module):
    """Keeps five maps until the end."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        kept = [images.neg() for _ in range(5)]
        return kept[0]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_peak_memory_counts_what_lives_at_once(batch_size: int) -> None:
    assert measure_peak_memory(Chain(), MIB, batch_size=batch_size) == pytest.approx(3 * batch_size, abs=0.01)
    assert measure_peak_memory(Hoard(), MIB, batch_size=batch_size) == pytest.approx(6 * batch_size, abs=0.01)


def test_peak_memory_counts_parameters_and_buffers_once() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(512, 512))
            self.same = self.weight
            self.also_same = nn.Module()
            self.also_same.weight = self.weight
            self.register_buffer("statistics", torch.zeros(512, 1024))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images

    assert measure_peak_memory(Shared(), MIB) == pytest.approx(1 + 2 + 1, abs=0.01)


def test_peak_memory_does_not_depend_on_what_was_allocated_before() -> None:
    before = measure_peak_memory(Chain(), MIB)
    held = torch.zeros(64, 512, 512)
    del held
    kept = torch.zeros(16, 512, 512)
    assert measure_peak_memory(Chain(), MIB) == before
    assert len(kept) == 16


def test_measuring_memory_prints_nothing() -> None:
    code = "import torch; from zoo.evaluation.latency import measure_peak_memory as m; m(torch.nn.ReLU(), (1, 8, 8))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
