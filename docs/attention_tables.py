"""What docs/attention-family.md says of every mechanism: from its docstring, its counted cost and measured rows."""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks import attention_exactness, attention_scaling
from zoo.evaluation.complexity import count_macs, count_parameters
from zoo.factory import create_attention, create_token_attention
from zoo.registry import ATTENTION, TOKEN_ATTENTION

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "Not measured yet."
EMBED_DIM, NUM_HEADS = 192, 3
LENGTHS = (1024, 16384)
MAP = (256, 14, 14)


class OverARow(nn.Module):
    """Gives an image of one row to an attention as a sequence, and as its context where it takes one."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.inner = attention

    def forward(self, images: Tensor) -> Tensor:
        """Return the attended tokens."""
        tokens = images.flatten(2).mT
        takes_context = "context" in inspect.signature(self.inner.forward).parameters
        return self.inner(tokens, **({"context": tokens} if takes_context else {}))


def token_family_table() -> str:
    """Return a row per token attention: its meaning, how it grows, and the products between tokens, counted."""
    header = ("name", "what comes out", "time", "memory", *(f"MACs, {length // 1024}k tokens" for length in LENGTHS))
    rows = []
    for name, mechanism in TOKEN_ATTENTION.items():
        module = OverARow(create_token_attention(name, EMBED_DIM, num_heads=NUM_HEADS))
        macs = [count_macs(module, (EMBED_DIM, 1, length)) - length * 4 * EMBED_DIM**2 for length in LENGTHS]
        time, memory = costs_of(mechanism)
        rows.append([link_to(name, mechanism), meaning_of(mechanism), time, memory, *map(_in_millions, macs)])
    return _table("llllrr", header, rows)


def gate_family_table() -> str:
    """Return a row per gate: its formula, and what it costs on one map."""
    header = ("name", "what comes out", "parameters", "MACs")
    rows = []
    for name, mechanism in ATTENTION.items():
        module = create_attention(name, MAP[0])
        cost = [f"{count_parameters(module):,}", f"{count_macs(module, MAP):,}"]
        rows.append([link_to(name, mechanism), meaning_of(mechanism), *cost])
    return _table("llrr", header, rows)


def meaning_of(mechanism: Callable[..., Any]) -> str:
    """Return the first sentence of the second paragraph of a docstring, in Markdown."""
    paragraph = " ".join((inspect.getdoc(mechanism) or "").split("\n\n")[1].split())
    return _markdown(re.split(r"(?<=[.])\s|:\s(?!``)", paragraph)[0].rstrip("."))


def costs_of(mechanism: Callable[..., Any]) -> tuple[str, str]:
    """Return time and memory as the docstring's section ``Cost`` gives them."""
    section = re.search(r"Cost:\n(.*?)\n\n", inspect.getdoc(mechanism) or "", re.DOTALL)
    assert section is not None
    time, memory = " ".join(section[1].split()).rstrip(".").removeprefix("Time ").split(", memory ")
    return _markdown(time), _markdown(memory)


def link_to(name: str, mechanism: Callable[..., Any]) -> str:
    """Return the name as a link to the file that holds the mechanism."""
    return f"[`{name}`](../{mechanism.__module__.replace('.', '/')}.py)"


def scaling_table() -> str:
    """Return, of every line of the picture, the fitted exponents of time and memory and whether they reach the aim."""
    rows = attention_scaling.newest_rows()
    if not rows:
        return NOT_YET
    exponents = [f"{what}, {which}" for what in ("time", "memory") for which in ("forward", "training")]
    header = ("kind", "options", "longest", *exponents, "aim", "reached", "training at 1k", "at the longest")
    body = [_scaling_row(rows, kind) for kind in dict.fromkeys(row["kind"] for row in rows)]
    return f"{_table('ll' + 9 * 'r', header, body)}\n\n{_origins(rows, 'Times are medians over rounds.')}"


def _scaling_row(rows: Sequence[dict[str, str]], kind: str) -> list[str]:
    exponents = [
        attention_scaling.fitted_exponent(*attention_scaling.series_of(rows, kind, which, column))
        for column in ("time_ms", "peak_memory_mib")
        for which in attention_scaling.PASSES
    ]
    target = attention_scaling.KINDS[kind].target
    lengths, times = attention_scaling.series_of(rows, kind, attention_scaling.PASSES[1], "time_ms")
    options = next(row["options"] for row in rows if row["kind"] == kind)
    return [
        kind,
        f"`{options}`" if options else "",
        f"{lengths[-1] / 1024:g}k",
        *(f"{exponent:.2f}" for exponent in exponents),
        "" if target is None else str(target),
        "" if target is None else "yes" if all(map(target.is_reached_by, exponents)) else "no",
        f"{times[0]:.3g} ms",
        f"{times[-1]:.4g} ms",
    ]


def exactness_table() -> str:
    """Return one table per number of tokens and machine: what each backend loses, by what the plain formula loses."""
    rows = attention_exactness.newest_rows()
    if not rows:
        return NOT_YET
    parts = []
    for place in dict.fromkeys((row["tokens"], row["accelerator"]) for row in rows):
        chosen = [row for row in rows if (row["tokens"], row["accelerator"]) == place]
        columns = list(dict.fromkeys((row["backend"], row["dtype"]) for row in chosen))
        cells = {(row["option"], row["backend"], row["dtype"]): row for row in chosen}
        body = [
            [option, *(_exactness_cell(cells[option, *column]) for column in columns)]
            for option in dict.fromkeys(row["option"] for row in chosen)
        ]
        missed = sum(row["reached"] == "no" for row in chosen)
        verdict = f"{len(chosen) - missed} of {len(chosen)} are within their limits."
        header = (f"option, {place[0]} tokens", *(f"{backend} {dtype}" for backend, dtype in columns))
        parts.append(f"{_table('l' + len(columns) * 'r', header, body)}\n\n{_origins(chosen, verdict)}")
    return "\n\n".join(parts)


def _exactness_cell(row: dict[str, str]) -> str:
    cell = f"{float(row['output_ratio']):.2f} / {float(row['gradient_ratio']):.2f}"
    return cell if row["reached"] == "yes" else f"**{cell}**"


def _origins(rows: Sequence[dict[str, str]], remark: str) -> str:
    """Say where rows were measured."""
    origins = dict.fromkeys(
        f"{row['date'][:10]}, {row['accelerator'] or row['processor']}, threads: {row['num_threads']}, "
        f"torch {row['torch']}, commit {row['commit'][:10]}."
        for row in rows
    )
    return f"{remark} {' '.join(origins)}"


def _table(alignments: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; ``l`` and ``r`` say to which side each column goes."""
    rule = [":--" if side == "l" else "--:" for side in alignments]
    lines = [header, rule, *([text.replace("|", "\\|") for text in texts] for texts in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def _in_millions(macs: int) -> str:
    return f"{macs / 1e6:,.0f} M"


def tables() -> dict[str, Callable[[], str]]:
    """Return the tables by the names of their places in the page."""
    return {
        "token family": token_family_table,
        "gate family": gate_family_table,
        "attention scaling": scaling_table,
        "attention exactness": exactness_table,
    }
