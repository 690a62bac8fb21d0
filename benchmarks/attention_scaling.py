"""How do time and memory of each token attention grow with the tokens?

python benchmarks/attention_scaling.py                       every kind, then the picture
python benchmarks/attention_scaling.py --kinds window linear   some of them; the others keep their newest rows

One sample, width 128, two heads, float32, one thread of a processor or a CUDA device. Every kind that looks at some
tokens only looks at 64 or so. Peak memory is what is allocated beyond weights and tokens: on a processor counted
exactly, allocation by allocation.
"""

import argparse
import csv
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

import zoo
from benchmarks.measurements import Target, append_rows, describe_run, interleave
from zoo.serialization import write_atomically

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "attention_scaling.csv"
PICTURE = ROOT / "docs" / "attention_scaling.png"
LENGTHS = (1024, 2048, 4096, 8192, 16384)
PASSES = ("forward", "forward and backward")
EMBED_DIM, NUM_HEADS = 128, 2
LINEAR = Target(1.15, "at most")
_SECONDS_PER_MEASURE = 0.05
_MIB = 2**20


@dataclass(frozen=True)
class Kind:
    """One line of the picture: a mechanism with its options, to what length it is taken, and how it should grow."""

    attention: str
    options: dict[str, Any] = field(default_factory=dict)
    longest: int = LENGTHS[-1]
    target: Target | None = LINEAR

    def create(self, device: str) -> nn.Module:
        """Build it with fixed weights."""
        torch.manual_seed(0)
        return zoo.create_token_attention(self.attention, EMBED_DIM, num_heads=NUM_HEADS, **self.options).to(device)


KINDS = {
    # Scores alone are 2 GiB at 16384 tokens, and training holds several such tensors.
    "plain, all scores held": Kind("multi_head", {"backend": "reference"}, longest=4096, target=None),
    "plain": Kind("multi_head", target=None),
    "window": Kind("window", {"window_size": 64}),
    "dilated": Kind("dilated", {"window": 32, "dilation": 4}),
    "longformer": Kind("longformer", {"window": 32, "num_global": 1}),
    "big_bird": Kind("big_bird", {"window": 16, "num_global": 1, "num_random": 1, "block_size": 32}),
    "linear": Kind("linear"),
    "linear, causal": Kind("linear", {"is_causal": True}),
}


def step_of(kind: Kind, which: str, num_tokens: int, device: str) -> Callable[[], None]:
    """Return what is measured: one pass of a module over one sample."""
    attention = kind.create(device)
    tokens = torch.randn(1, num_tokens, EMBED_DIM, generator=torch.Generator().manual_seed(0)).to(device)

    def forward() -> None:
        with torch.no_grad():
            attention(tokens)

    def forward_and_backward() -> None:
        output: Tensor = attention(tokens)
        torch.autograd.grad(output.square().mean(), list(attention.parameters()))

    return forward if which == "forward" else forward_and_backward


def seconds_of(step: Callable[[], None], device: str) -> float:
    """Return the time of one step, the mean of as many as fill a twentieth of a second.

    On a processor it is the time that the one thread itself ran: what other programs take does not count.
    """
    clock = time.thread_time if device == "cpu" else time.perf_counter
    count, started = 0, clock()
    while count == 0 or clock() - started < _SECONDS_PER_MEASURE:
        step()
        count += 1
        if device == "cuda":
            torch.cuda.synchronize()
    return (clock() - started) / count


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Leave out what torch's profiler writes, two lines each time it is used."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def peak_memory_of(step: Callable[[], None], device: str) -> int:
    """Return the most bytes that one step holds at a time, beyond those held before it."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with quiet_stderr(), torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        step()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure(kinds: Sequence[str], rounds: int, device: str) -> list[dict[str, Any]]:
    """Return a row per kind, pass and length."""
    cases = [
        (kind, which, tokens)
        for kind in kinds
        for which in PASSES
        for tokens in LENGTHS
        if tokens <= KINDS[kind].longest
    ]
    steps = {(kind, which, tokens): step_of(KINDS[kind], which, tokens, device) for kind, which, tokens in cases}
    for step in steps.values():
        step()
    seconds = interleave({case: lambda step=step: seconds_of(step, device) for case, step in steps.items()}, rounds)
    accelerator = torch.cuda.get_device_name() if device == "cuda" else ""
    run = describe_run(accelerator=accelerator, embed_dim=EMBED_DIM, num_heads=NUM_HEADS, precision="float32")
    return [
        {
            **run,
            "kind": kind,
            "attention": KINDS[kind].attention,
            "options": " ".join(f"{name}={value}" for name, value in KINDS[kind].options.items()),
            "pass": which,
            "tokens": tokens,
            "rounds": rounds,
            "time_ms": f"{1e3 * statistics.median(seconds[kind, which, tokens]):.5g}",
            "time_ms_min": f"{1e3 * min(seconds[kind, which, tokens]):.5g}",
            "time_ms_max": f"{1e3 * max(seconds[kind, which, tokens]):.5g}",
            "peak_memory_mib": f"{peak_memory_of(steps[kind, which, tokens], device) / _MIB:.5g}",
        }
        for kind, which, tokens in cases
    ]


def newest_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """Return, of each kind, the rows of the newest run that measured it, in the order of the kinds."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    newest = {row["kind"]: row["date"] for row in rows}
    return [row for kind in KINDS for row in rows if row["kind"] == kind and row["date"] == newest[kind]]


def fitted_exponent(tokens: Sequence[float], figures: Sequence[float]) -> float:
    """Return p of the ``figure = c * tokens^p`` that fits best: the slope of a line through the logarithms.

    >>> round(fitted_exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    logarithms = [torch.tensor(values, dtype=torch.float64).log().tolist() for values in (tokens, figures)]
    return statistics.linear_regression(*logarithms).slope


def series_of(rows: Sequence[dict[str, str]], kind: str, which: str, column: str) -> tuple[list[float], list[float]]:
    """Return lengths and figures of one line."""
    chosen = [row for row in rows if row["kind"] == kind and row["pass"] == which]
    return [float(row["tokens"]) for row in chosen], [float(row[column]) for row in chosen]


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Draw time and memory against length, forward above and training below, with lines that grow by 1 and 2."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    columns = {"time_ms": "time (ms)", "peak_memory_mib": "peak memory (MiB)"}
    for row_of_axes, which in zip(panels, PASSES, strict=True):
        for axes, (column, label) in zip(row_of_axes, columns.items(), strict=True):
            _draw_panel(axes, rows, which, column)
            axes.set_title(f"{which}: {label}")
    for axes in panels[1]:
        axes.set_xlabel("tokens")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    write_atomically(path, FigureCanvasAgg(figure).print_png)


def _draw_panel(axes: Axes, rows: Sequence[dict[str, str]], which: str, column: str) -> None:
    lines = {kind: series_of(rows, kind, which, column) for kind in dict.fromkeys(row["kind"] for row in rows)}
    for number, (kind, (lengths, figures)) in enumerate(lines.items()):
        marker = "osD^vP*X"[number % 8]
        axes.loglog(lengths, figures, marker=marker, markersize=5, color=f"C{number}", label=kind)
    lowest, highest = (bound(figure for _, figures in lines.values() for figure in figures) for bound in (min, max))
    for power, style in ((1, ":"), (2, "--")):
        guide = [lowest * (tokens / LENGTHS[0]) ** power for tokens in LENGTHS]
        axes.loglog(
            LENGTHS, guide, style, color="0.6", zorder=0, label=f"grows with the {'square of ' * (power - 1)}tokens"
        )
    axes.set(ylim=(lowest / 1.5, highest * 1.5), xticks=LENGTHS, xticklabels=[f"{n // 1024}k" for n in LENGTHS])
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def main() -> None:
    """Measure, append the rows, print the exponents and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    append_rows(arguments.results, measure(arguments.kinds, arguments.rounds, arguments.device))
    rows = newest_rows(arguments.results)
    for kind in arguments.kinds:
        for which in PASSES:
            found = {
                column: fitted_exponent(*series_of(rows, kind, which, column))
                for column in ("time_ms", "peak_memory_mib")
            }
            print(f"{kind:24} {which:22} time n^{found['time_ms']:.2f}  memory n^{found['peak_memory_mib']:.2f}")
    draw(rows, arguments.picture)


if __name__ == "__main__":
    main()
