"""How fast is the Flash kernel of this project beside torch's, and how far from the device's matrix rate?

python benchmarks/flash_attention.py                          all cases, in under six minutes on a data-centre GPU
python benchmarks/flash_attention.py --head_dims 64 --tokens 197 1025
python benchmarks/flash_attention.py --picture_only           draw the newest rows again

Results are checked against float64 first; while one is wrong, no speed is measured. The products of every case take
the same 16384 tokens of width 1024, cut into samples and heads. FLOPs are those of two products forward and of five
backward, whatever is really computed.
"""

import argparse
import csv
import importlib.metadata
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.measurements import Target, append_rows, describe_run, interleave
from zoo.functional import attention
from zoo.functional.flash_attention import MIN_CAPABILITY
from zoo.serialization import write_atomically

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "flash_attention.csv"
PICTURE = ROOT / "docs" / "flash_attention.png"
VIT_TOKENS = (64, 197, 257, 577, 1025)
TOKENS = (*VIT_TOKENS, 2048, 4096, 8192, 16384)
HEAD_DIMS = (64, 128, 32)
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PASSES = ("forward", "forward and backward")
OURS = "ours"
TOTAL_TOKENS, WIDTH = 16384, 1024
LONGEST_PLAIN = 4096  # beyond it, scores held in memory take many GiB
SECONDS = 330
ROUNDS = 5
_MIB = 2**20

Attend = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """One size of attention, with a bias (1, heads, tokens, tokens) that is learned or without."""

    dtype: str
    head_dim: int
    tokens: int
    has_bias: bool = False

    @property
    def batch(self) -> int:
        """Samples that make up the tokens of every case."""
        return max(1, TOTAL_TOKENS // self.tokens)

    @property
    def heads(self) -> int:
        """Heads that make up the width of every case."""
        return WIDTH // self.head_dim

    def flops(self, passes: str) -> float:
        """Count the operations of the products, 2 per multiply-accumulate.

        >>> Case("float16", 64, 16384).flops("forward") == 4 * 16 * 16384**2 * 64
        True
        """
        products = 2 if passes == "forward" else 7
        return 2.0 * products * self.batch * self.heads * self.tokens**2 * self.head_dim

    def draw(self, device: str) -> list[Tensor]:
        """Return query, key, value as views of one projection, and the bias if there is one."""
        generator = torch.Generator(device).manual_seed(0)
        options: dict[str, Any] = {"generator": generator, "device": device, "dtype": DTYPES[self.dtype]}
        fused = torch.randn(self.batch, self.tokens, 3, self.heads, self.head_dim, **options)
        tensors = [tensor.detach().requires_grad_() for tensor in fused.permute(2, 0, 3, 1, 4)]
        if self.has_bias:
            tensors.append(torch.randn(1, self.heads, self.tokens, self.tokens, **options).requires_grad_())
        return tensors


def list_cases(dtypes: Sequence[str], head_dims: Sequence[int], tokens: Sequence[int]) -> list[Case]:
    """Return the cases, those that the project aims at first, so that a time limit takes the others."""
    cases = [Case(dtype, head_dim, length) for dtype in dtypes for head_dim in head_dims for length in tokens]
    biased = [Case(dtypes[0], 64, length, has_bias=True) for length in tokens if length in VIT_TOKENS]
    aimed = [case for case in cases if case.head_dim == 64 and case.tokens in VIT_TOKENS]
    return [*aimed, *(biased if 64 in head_dims else []), *(case for case in cases if case not in aimed)]


def _sdpa(backend: SDPBackend) -> Attend:
    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)

    return attend


def _ours(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    return attention(query, key, value, bias=bias, backend="flash")


def _plain(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    scores = query @ key.mT * query.shape[-1] ** -0.5
    return (scores if bias is None else scores + bias).softmax(-1) @ value


def implementations(case: Case) -> dict[str, Attend]:
    """Return what takes part in a case; FlexAttention, which compiles for seconds, only where we aim."""
    taking_part: dict[str, Attend] = {
        OURS: _ours,
        "sdpa flash": _sdpa(SDPBackend.FLASH_ATTENTION),
        "sdpa efficient": _sdpa(SDPBackend.EFFICIENT_ATTENTION),
        "sdpa cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION),
    }
    if case.has_bias:  # torch's flash kernel takes none
        del taking_part["sdpa flash"]
    if case.tokens <= LONGEST_PLAIN:
        taking_part["plain"] = _plain
    if case.head_dim == 64 and case.dtype == next(iter(DTYPES)) and not case.has_bias:
        taking_part["flex"] = torch.compile(flex_attention, dynamic=False)
    return taking_part


def find_errors(device: str, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[str]:
    """Return what is wrong: a result that loses more than the plain formula does in its dtype, in a sentence each."""
    return [
        sentence
        for dtype in dtypes
        for head_dim in head_dims
        for options in ({}, {"is_causal": True}, {"window": 20}, {"bias": True}, {"mask": True})
        for sentence in _errors_of(device, DTYPES[dtype], head_dim, options)
    ]


def _errors_of(device: str, dtype: torch.dtype, head_dim: int, options: dict[str, Any]) -> Iterator[str]:
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3, 197, head_dim, device=device).to(dtype) for _ in range(4)]
    extra = [torch.randn(1, 3, 197, 197, device=device).to(dtype)] if "bias" in options else []
    given = {name: value for name, value in options.items() if name not in ("bias", "mask")}
    if "mask" in options:
        given["mask"] = (torch.arange(197, device=device) < 100)[None, None, None]

    def run(backend: str, to: torch.dtype, *, stepwise: bool = False) -> list[Tensor]:
        leaves = [tensor.to(to).requires_grad_() for tensor in (*tensors[:3], *extra)]
        bias = leaves[3] if extra else None
        if stepwise:
            output = _stepwise(*leaves[:3], bias, given)
        else:
            output = attention(*leaves[:3], bias=bias, backend=backend, **given)
        return [output.detach(), *torch.autograd.grad(output, leaves, tensors[3].to(to))]

    exact, lossy = run("reference", torch.float64), run("", dtype, stepwise=True)
    for name, mine, theirs, true in zip("oqkvb", run("flash", dtype), lossy, exact, strict=False):
        factor = 2 if name == "o" else 3
        error, allowed = float((mine - true).norm()), factor * float((theirs - true).norm())
        if not error <= allowed:
            yield f"{dtype}, head_dim {head_dim}, {options or 'plain'}: {name} is off by {error:.3g}, not {allowed:.3g}"


def _stepwise(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, given: dict[str, Any]) -> Tensor:
    """The plain formula, every step in the dtype of its inputs."""
    eye = torch.eye(query.shape[2], device=query.device, dtype=torch.float64)[None, None]
    zeros = torch.zeros_like(query, dtype=torch.float64)
    visible = attention(zeros, zeros, eye.expand(*query.shape[:2], -1, -1), backend="reference", **given) > 0
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~visible, -torch.inf).softmax(-1) @ value


def time_ms(call: Callable[[], object], *, seconds: float = 0.02) -> float:
    """Return milliseconds per call on the current CUDA device, over calls that take about ``seconds`` together."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    repeats = max(1, min(200, int(1000 * seconds / max(start.elapsed_time(end), 1e-3))))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


def peak_mib(call: Callable[[], object]) -> float:
    """Return the memory that a call allocates beyond what is held before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / _MIB


def measure_matrix_rate(device: str, dtype: str) -> float:
    """Return TFLOP/s of a large product of matrices, the bound that all of them share."""
    size = 8192
    left, right = (torch.randn(size, size, device=device, dtype=DTYPES[dtype]) for _ in range(2))
    return 2 * size**3 / statistics.median(time_ms(lambda: left @ right) for _ in range(ROUNDS)) / 1e9


def measure_case(case: Case, device: str, matrix_rates: dict[str, float]) -> list[dict[str, Any]]:
    """Return a row for each implementation that runs, and each pass; all take turns."""
    inputs = case.draw(device)
    send = torch.randn_like(inputs[2])
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name, attend in implementations(case).items():
        both = {
            PASSES[0]: lambda attend=attend: _without_gradient(attend, inputs),
            PASSES[1]: lambda attend=attend: torch.autograd.grad(attend(*inputs), inputs, send),
        }
        try:
            for call in both.values():  # compiles, and finds out what cannot run here
                call()
        except RuntimeError as error:
            print(f"  {name} does not run: {str(error).splitlines()[0][:100]}")
            continue
        calls |= {(name, passes): call for passes, call in both.items()}
    times = interleave({key: lambda call=call: time_ms(call) for key, call in calls.items()}, ROUNDS)
    rows = []
    for (name, passes), values in times.items():
        rate = case.flops(passes) / statistics.median(values) / 1e9
        rows.append(
            {
                "implementation": name,
                "passes": passes,
                "dtype": case.dtype,
                "head_dim": case.head_dim,
                "tokens": case.tokens,
                "bias": case.has_bias,
                "batch": case.batch,
                "heads": case.heads,
                "median_ms": f"{statistics.median(values):.5g}",
                "min_ms": f"{min(values):.5g}",
                "max_ms": f"{max(values):.5g}",
                "tflops": f"{rate:.5g}",
                "matrix_rate_share": f"{rate / matrix_rates[case.dtype]:.4g}",
                "peak_mib": f"{peak_mib(calls[name, passes]):.5g}",
            }
        )
    return rows


def _without_gradient(attend: Attend, inputs: Sequence[Tensor]) -> Tensor:
    with torch.no_grad():
        return attend(*inputs)


def with_verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add, to each of our rows, the ratio to SDPA's best path and whether it reaches what the project aims at."""
    judged = []
    for row in rows:
        rivals = [
            float(other["median_ms"])
            for other in rows
            if other["implementation"].startswith("sdpa")
            and all(other[key] == row[key] for key in ("passes", "dtype", "head_dim", "tokens", "bias"))
        ]
        ratio, target = None, None
        if row["implementation"] == OURS and rivals:
            ratio = min(rivals) / float(row["median_ms"])
            if row["bias"]:
                target = Target(1.5)
            elif row["head_dim"] == 64 and row["tokens"] in VIT_TOKENS:
                target = Target(1.0 if row["passes"] == PASSES[0] else 0.9)
        reached = "" if ratio is None or target is None else ("yes" if target.is_reached_by(ratio) else "no")
        shown = {
            "of_best_sdpa": "" if ratio is None else f"{ratio:.4g}",
            "target": "" if target is None else str(target),
        }
        judged.append({**row, **shown, "reached": reached})
    return judged


def draw_picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw TFLOP/s against tokens: a panel for each pass and head_dim, in the dtype that has the most rows."""
    plain = [row for row in rows if str(row["bias"]) == "False"]
    counts = [row["dtype"] for row in plain]
    dtype = max(sorted(set(counts)), key=counts.count)
    plain = [row for row in plain if row["dtype"] == dtype]
    head_dims = sorted({int(row["head_dim"]) for row in plain})
    figure = Figure(figsize=(4.2 * len(head_dims), 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(PASSES), len(head_dims), sharex=True, squeeze=False)
    for (line, passes), (column, head_dim) in ((a, b) for a in enumerate(PASSES) for b in enumerate(head_dims)):
        panel = axes[line][column]
        chosen = [row for row in plain if row["passes"] == passes and int(row["head_dim"]) == head_dim]
        for name in dict.fromkeys(row["implementation"] for row in chosen):
            points = sorted((int(r["tokens"]), float(r["tflops"])) for r in chosen if r["implementation"] == name)
            panel.plot(
                *zip(*points, strict=True), marker="o", markersize=3, linewidth=2.2 if name == OURS else 1, label=name
            )
        panel.set_xscale("log", base=2)
        panel.set_title(f"{passes}, head_dim {head_dim}, {dtype}")
        panel.set_xlabel("tokens")
        panel.set_ylabel("TFLOP/s")
    axes[0][0].legend()
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=110))


def newest_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of the last run."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row["date"] == rows[-1]["date"]]


def why_no_device() -> str | None:
    """Return why nothing can be measured here, or ``None``."""
    if not torch.cuda.is_available():
        return "this benchmark needs a CUDA device; there is none here, so nothing was measured"
    capability = torch.cuda.get_device_capability()
    if capability < MIN_CAPABILITY:
        return f"this benchmark needs a device of compute capability 8.0 or newer, and this one has {capability}"
    return None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--head_dims", nargs="+", type=int, choices=HEAD_DIMS, default=list(HEAD_DIMS))
    parser.add_argument("--tokens", nargs="+", type=int, default=list(TOKENS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no case starts later than this")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--picture_only", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, device: str = "cuda") -> None:
    options = parse(arguments)
    if not options.picture_only:
        reason = why_no_device()
        if reason is not None:
            sys.exit(reason)
        started = time.monotonic()
        errors = find_errors(device, options.dtypes, options.head_dims)
        if errors:
            sys.exit("\n".join(["results are wrong, so no speed was measured:", *errors]))
        print("all results are right; measuring")
        rates = {dtype: measure_matrix_rate(device, dtype) for dtype in options.dtypes}
        run = describe_run(
            device=torch.cuda.get_device_name(),
            capability="{}.{}".format(*torch.cuda.get_device_capability()),
            cuda=torch.version.cuda,
            triton=importlib.metadata.version("triton"),
        )
        rows: list[dict[str, Any]] = []
        for case in list_cases(options.dtypes, options.head_dims, options.tokens):
            if time.monotonic() - started > options.seconds:
                print(f"time is up: {case} and those after it were not measured")
                break
            found = with_verdicts(measure_case(case, device, rates))
            rows += [{**run, "matrix_tflops": f"{rates[case.dtype]:.5g}", **row} for row in found]
            print(case, "; ".join(f"{row['implementation']} {row['passes']} {row['tflops']}" for row in found))
        append_rows(options.output, rows)
    draw_picture(newest_rows(options.output), options.picture)


if __name__ == "__main__":
    main()
