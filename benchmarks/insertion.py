"""Attention inserted into twenty networks of torchvision and timm: are the logits equal, and what do the gates cost?

python benchmarks/insertion.py
python benchmarks/insertion.py --nets torchvision/resnet18 timm/convnext_atto --rounds 9
python benchmarks/insertion.py --write_docs
"""

import argparse
import copy
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
import torchvision
from rich.console import Console
from rich.table import Table
from torch import nn

import zoo
from benchmarks.documents import fill_section, format_table
from benchmarks.measurements import OtherPrograms, append_rows, describe_run
from zoo.evaluation.complexity import count_macs
from zoo.insertion import InsertionReport

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "insertion.csv"
DOCUMENT = ROOT / "docs" / "inserting-attention.md"
SECTION = "insertion"

IMAGE_SIZE = (3, 224, 224)
NUM_IMAGES = 2
SEED = 0
ATTENTIONS = ("se", "cbam", "eca", "sam")


class Net(NamedTuple):
    """A network of another library, and whether it has gates of its own, which are then replaced."""

    library: str
    name: str
    has_own_gates: bool = False

    def __str__(self) -> str:
        return f"{self.library}/{self.name}"

    def create(self) -> nn.Module:
        """Build it with random weights that look trained."""
        torch.manual_seed(SEED)
        if self.library == "timm":
            model = timm.create_model(self.name, pretrained=False)
        else:
            model = torchvision.models.get_model(self.name, weights=None)
        return as_trained(model)


NETS = (
    *(Net("torchvision", name) for name in ("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2")),
    *(Net("torchvision", name) for name in ("regnet_x_400mf", "mobilenet_v2", "convnext_tiny", "densenet121")),
    *(Net("torchvision", name, has_own_gates=True) for name in ("mobilenet_v3_large", "efficientnet_b0")),
    *(Net("timm", name) for name in ("resnet34", "resnet26d", "regnetx_004", "mobilenetv1_100", "mobilenetv2_100")),
    *(Net("timm", name) for name in ("mobilenetv4_conv_small", "efficientnet_lite0", "convnext_atto")),
    *(Net("timm", name, has_own_gates=True) for name in ("mobilenetv3_large_100", "regnety_004")),
)


def as_trained(model: nn.Module) -> nn.Module:
    """Draw norms, scales and statistics from 0.75 to 1.25, in eval mode.

    Libraries start many of them at zero, so that whole branches vanish: gates on them would show nothing.
    """
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            if value.is_floating_point() and value.squeeze().ndim <= 1:
                value.copy_(torch.rand(value.shape, generator=generator) * 0.5 + 0.75)
    return model.eval()


def measure_net(net: Net, attentions: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Insert each mechanism in turn into one network, compare, time, remove, and give one row for each.

    Raises:
        RuntimeError: The network was not the same after a removal.
    """
    model = net.create()
    images = torch.randn(NUM_IMAGES, *IMAGE_SIZE, generator=torch.Generator().manual_seed(SEED))
    with torch.inference_mode():
        plain = model(images)
    macs = count_macs(model, IMAGE_SIZE)
    for attention in attentions:
        torch.manual_seed(SEED)
        report = zoo.insert_attention(model, attention, replace=net.has_own_gates, example_input=images[:1])
        report = report.with_latency(model, images[:1], rounds=rounds)
        with torch.inference_mode():
            logits, expected = model(images), without_gates(model, net)(images)
        yield describe(net, report, macs, difference=(logits - expected).abs().max().item(), scale=plain.std().item())
        zoo.remove_attention(model)
        with torch.inference_mode():
            if not torch.equal(model(images), plain):
                raise RuntimeError(f"{net} gives other logits after {attention} was removed")


def without_gates(model: nn.Module, net: Net) -> nn.Module:
    """Return the plain network: a copy without the inserted gates, and without those they replaced."""
    plain = copy.deepcopy(model)
    for name in zoo.remove_attention(plain) if net.has_own_gates else []:
        around, _, child = name.removesuffix(".attention").rpartition(".")
        setattr(plain.get_submodule(around), child, nn.Identity())
    if not net.has_own_gates:
        zoo.remove_attention(plain)
    return plain


def describe(net: Net, report: InsertionReport, macs: int, *, difference: float, scale: float) -> dict[str, Any]:
    """Return the columns of one network and mechanism."""
    latency = report.latency
    assert latency is not None
    return {
        "net": str(net),
        "attention": report.attention,
        "replaced": "own gates" if net.has_own_gates else "",
        "places": len(report.gates),
        "parameters": report.plain_parameters,
        "added_parameters": report.added_parameters,
        "macs": macs,
        "added_macs": report.added_macs,
        "max_logit_difference": f"{difference:.3g}",
        "logit_std": f"{scale:.3g}",
        "plain_ms": f"{latency.plain_ms:.4g}",
        "latency_ratio": f"{latency.ratio:.4f}",
        "latency_ratio_low": f"{latency.lowest_ratio:.4f}",
        "latency_ratio_high": f"{latency.highest_ratio:.4f}",
        "rounds": latency.rounds,
    }


def read_newest(path: Path) -> list[dict[str, str]]:
    """Return the newest row of each network and mechanism, in the order of the networks."""
    with path.open(newline="", encoding="utf-8") as file:
        newest = {(row["net"], row["attention"]): row for row in csv.DictReader(file)}
    order = {str(net): number for number, net in enumerate(NETS)}
    return sorted(newest.values(), key=lambda row: (order[row["net"]], ATTENTIONS.index(row["attention"])))


def summarise(rows: Sequence[dict[str, str]]) -> str:
    """Return the table of a document: a line per network, mechanisms side by side, and where the rows come from."""
    nets = list(dict.fromkeys(row["net"] for row in rows))
    attentions = list(dict.fromkeys(row["attention"] for row in rows))
    header = ["network", "places", "parameters", "MACs", "added parameters", "added MACs", "latency", "max difference"]
    header[4:7] = [f"{column}, {' / '.join(attentions)}" for column in header[4:7]]
    body = []
    for net in nets:
        of_net = {row["attention"]: row for row in rows if row["net"] == net}
        first = next(iter(of_net.values()))
        present = [of_net[attention] for attention in attentions if attention in of_net]
        body.append(
            [
                net + (" (own gates replaced)" if first["replaced"] else ""),
                first["places"],
                f"{int(first['parameters']) / 1e6:.2f} M",
                f"{int(first['macs']) / 1e6:.0f} M",
                " / ".join(shorten(int(row["added_parameters"])) for row in present),
                " / ".join(shorten(int(row["added_macs"])) for row in present),
                " / ".join(f"{float(row['latency_ratio']):.2f}" for row in present),
                f"{max(float(row['max_logit_difference']) for row in present):g}",
            ]
        )
    run = rows[-1]
    commits = ", ".join(dict.fromkeys(row["commit"][:10] for row in rows))
    others = [float(row["others_percent"]) for row in rows]
    origin = (
        f"{run['date'][:10]}, {run['processor']}, {run['num_threads']} thread, batch of 1 at 3 x 224 x 224, torch "
        f"{run['torch']}, torchvision {run['torchvision']}, timm {run['timm']}, commit {commits}, seed {run['seed']}. "
        f"Meanwhile other programs took {min(others):.0f} to {max(others):.0f} % of the processors."
    )
    return f"{format_table(header, body)}\n\n{origin}"


def shorten(count: int) -> str:
    """Write a count with three figures.

    >>> shorten(96), shorten(89_880), shorten(5_279_494)
    ('96', '89.9 k', '5.28 M')
    """
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as measured."""
    columns = ("net", "attention", "places", "added_parameters", "added_macs", "latency_ratio", "max_logit_difference")
    table = Table(title="Attention inserted at the identity", title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if column in columns[:2] else "right")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = [str(net) for net in NETS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--nets", nargs="+", choices=names, default=names, metavar="LIBRARY/NAME", help="all 20")
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=list(ATTENTIONS), help="all four")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of timed passes per row (5)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="CSV file that receives the rows")
    parser.add_argument(
        "--write_docs", action="store_true", help=f"measure nothing; write the table of {DOCUMENT.name}"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, append the rows and print the table; or write the table of the document."""
    options = parse_arguments(arguments)
    if options.write_docs:
        fill_section(DOCUMENT, SECTION, summarise(read_newest(options.output)))
        return
    torch.set_num_threads(1)
    rows = []
    for net in NETS:
        if str(net) not in options.nets:
            continue
        others = OtherPrograms()
        measured = list(measure_net(net, options.attentions, options.rounds))
        run = describe_run(seed=SEED, timm=timm.__version__, others_percent=f"{others.share():.1f}")
        rows += [{**run, **row} for row in measured]
        append_rows(options.output, rows[-len(measured) :])
    print_table(rows)
    print(f"Rows appended to {options.output}")


if __name__ == "__main__":
    main()
