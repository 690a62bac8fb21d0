"""How exact is attention, on every backend, in every dtype, under every option?

python benchmarks/attention_exactness.py                                    every backend that can run here
TRITON_INTERPRET=1 python benchmarks/attention_exactness.py --backends flash  the kernels of this project on a processor

The measure is what the plain formula loses when it is computed in the dtype itself: ``softmax(q k^T / sqrt(d) + b) v``
in bfloat16 is off by so much from the same in float64, and a backend may be off by twice as much in its output and by
three times as much in each gradient. Few tokens and many take different paths in torch's kernels: ``--tokens``.
"""

import argparse
import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measurements import append_rows, describe_run
from zoo.functional import attention, causal_mask, intersect_masks, padding_mask, sliding_window_mask
from zoo.functional.attention import BACKENDS

RESULTS = Path(__file__).resolve().parent / "results" / "attention_exactness.csv"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OUTPUT_LIMIT, GRADIENT_LIMIT = 2.0, 3.0
BATCH, HEADS, HEAD_DIM = 2, 2, 64


@dataclass(frozen=True)
class Case:
    """One option: what attention is told, which pairs it leaves, and how the tokens are drawn.

    Args:
        options: Keyword arguments of attention, but for the bias.
        visible: The pairs that these leave; ``None`` for all.
        bias: Shape of an added bias, which is learned; ``None`` for none.
        query_tokens: Number of queries; ``None`` for as many as keys.
        head_dim: Columns of queries and keys.
        spread: Standard deviation of queries, keys and values; 1 gives scores of unit variance.
        fused: Queries, keys and values are views of one projection, as a module makes them.
    """

    options: dict[str, Any]
    visible: Tensor | None = None
    bias: tuple[int, ...] | None = None
    query_tokens: int | None = None
    head_dim: int = HEAD_DIM
    spread: float = 1.0
    fused: bool = False


def create_cases(tokens: int) -> dict[str, Case]:
    """Return every option under its name, for this number of keys, at least 24."""
    lengths = padding_mask(torch.tensor([tokens, 20]), tokens)
    pairs = torch.rand(BATCH, 1, tokens, tokens, generator=torch.Generator().manual_seed(9)) < 0.5
    pairs[0, :, 3] = False  # a query with nothing to look at
    causal, near = causal_mask(tokens), sliding_window_mask(tokens, window=24)
    per_head = (1, HEADS, tokens, tokens)
    return {
        "nothing": Case({}),
        "large scores": Case({}, spread=3.0),
        "head_dim 48": Case({}, head_dim=48),
        "views of one projection": Case({}, fused=True),
        "mask of lengths": Case({"mask": lengths}, lengths),
        "mask of pairs": Case({"mask": pairs}, pairs),
        "causal": Case({"is_causal": True}, causal),
        "causal, fewer queries": Case({"is_causal": True}, causal_mask(17, tokens), query_tokens=17),
        "window 4": Case({"window": 4}, sliding_window_mask(tokens, window=4)),
        "bias per head": Case({}, bias=per_head),
        "bias per key": Case({}, bias=(BATCH, 1, 1, tokens)),
        "scale 0.3": Case({"scale": 0.3}),
        "all together": Case(
            {"mask": lengths, "is_causal": True, "window": 24, "scale": 0.1},
            intersect_masks(lengths, causal, near),
            bias=per_head,
        ),
    }


def draw(case: Case, tokens: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Return query, key, value and, where there is one, the bias, rounded to the dtype."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    if case.fused:
        fused = case.spread * normal(BATCH, tokens, 3, HEADS, case.head_dim)
        tensors = list(fused.permute(2, 0, 3, 1, 4))
    else:
        lengths = (case.query_tokens or tokens, tokens, tokens)
        tensors = [case.spread * normal(BATCH, HEADS, length, case.head_dim) for length in lengths]
    return tensors if case.bias is None else [*tensors, normal(*case.bias)]


def plain(case: Case, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the formula, every step of it in the dtype of the tensors; queries with nothing to look at give zeros."""
    scores = query @ key.mT * case.options.get("scale", query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    if case.visible is None:
        return scores.softmax(-1) @ value
    visible = case.visible.to(query.device)
    blind = ~visible.any(-1, keepdim=True)
    weights = scores.masked_fill(~visible, -math.inf).masked_fill(blind, 0).softmax(-1)
    return weights.masked_fill(blind, 0) @ value


def differentiate(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the output and the gradient of each tensor, for an upstream gradient in another order of memory."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    output = function(*leaves)
    batch, heads, tokens, width = output.shape
    generator = torch.Generator().manual_seed(7)
    upstream = torch.randn(batch, tokens, heads, width, generator=generator, dtype=torch.float64)
    gradients = torch.autograd.grad(output, leaves, upstream.to(output.device, output.dtype).transpose(1, 2))
    return [output.detach(), *gradients]


def errors_of(results: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    """Return the error of the output and of each gradient, as a share of its norm."""
    return [((one.double() - other).norm() / other.norm()).item() for one, other in zip(results, exact, strict=True)]


def reason_against(backend: str, device: str) -> str | None:
    """Return why a backend cannot run here, or ``None``."""
    tokens = torch.zeros(1, 1, 1, 8, device=device)
    try:
        attention(tokens, tokens, tokens, backend=backend)
    except ValueError as error:
        return str(error)
    return None


def measure(backends: Sequence[str], tokens: int, device: str) -> list[dict[str, Any]]:
    """Return a row per case, dtype and backend."""
    accelerator = torch.cuda.get_device_name() if device == "cuda" else ""
    run = describe_run(accelerator=accelerator, batch=BATCH, heads=HEADS, tokens=tokens)
    rows = []
    for option, case in create_cases(tokens).items():
        for name, dtype in DTYPES.items():
            tensors = draw(case, tokens, dtype, device)
            exact = differentiate(lambda *them, case=case: plain(case, *them), [tensor.double() for tensor in tensors])
            lost = errors_of(differentiate(lambda *them, case=case: plain(case, *them), tensors), exact)
            for backend in backends:
                errors = errors_of(differentiate(call(case, backend, device), tensors), exact)
                # A quarter of a rounding is as good as none.
                floor = torch.finfo(dtype).eps / 4
                shares = [error / max(limit, floor) for error, limit in zip(errors, lost, strict=True)]
                is_within = shares[0] <= OUTPUT_LIMIT and max(shares[1:]) <= GRADIENT_LIMIT
                rows.append(
                    {
                        **run,
                        "backend": backend,
                        "dtype": name,
                        "option": option,
                        "output_error": f"{errors[0]:.3g}",
                        "gradient_error": f"{max(errors[1:]):.3g}",
                        "output_ratio": f"{shares[0]:.3f}",
                        "gradient_ratio": f"{max(shares[1:]):.3f}",
                        "reached": "yes" if is_within else "no",
                    }
                )
    return rows


def call(case: Case, backend: str, device: str) -> Callable[..., Tensor]:
    """Return attention under the options of a case."""
    options = {key: value.to(device) if isinstance(value, Tensor) else value for key, value in case.options.items()}

    def run(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        return attention(query, key, value, bias=bias, backend=backend, **options)

    return run


def newest_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """Return, of each backend with each number of tokens on each machine, the rows of its newest run."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    newest = {_series(row): row["date"] for row in rows}
    return [row for row in rows if row["date"] == newest[_series(row)]]


def _series(row: dict[str, str]) -> tuple[str, str, str]:
    return row["backend"], row["tokens"], row["accelerator"]


def main() -> None:
    """Measure, append the rows and say what is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*BACKENDS, "flash"]
    parser.add_argument("--backends", nargs="+", choices=known, help="by default all that can run here")
    parser.add_argument("--tokens", type=int, default=65)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    backends = []
    for backend in arguments.backends or known:
        reason = reason_against(backend, arguments.device)
        if reason is None:
            backends.append(backend)
        elif arguments.backends:
            parser.error(reason)
        else:
            print(f"left out: {reason}")
    rows = measure(backends, arguments.tokens, arguments.device)
    append_rows(arguments.results, rows)
    for row in rows:
        if row["reached"] == "no":
            print(
                f"{row['backend']}, {row['dtype']}, {row['option']}: output {row['output_ratio']} and gradient "
                f"{row['gradient_ratio']} times what the plain formula loses; the worst gradient is off by "
                f"{row['gradient_error']} of its norm"
            )
    print(f"{len(rows)} rows; {sum(row['reached'] == 'yes' for row in rows)} within their limits")


if __name__ == "__main__":
    main()
