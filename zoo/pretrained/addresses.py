"""How weights are called: a registered name, a file, an http address, or a name in the collections of others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl

from zoo.pretrained.downloading import check_digest
from zoo.pretrained.state_files import PICKLE_SUFFIXES
from zoo.registry import suggest

OPTIONS = ("architecture", "entry", "sha256")
Kind = Literal["timm", "torchvision", "hf", "url", "file", "card"]


@dataclass(frozen=True)
class Address:
    """The address of weights taken apart: its kind, the rest without options, and the options after ``#``.

    Args:
        kind: Which of the readers is meant.
        name: Name, path or URL.
        sha256: Digest that the file must have.
        entry: Entry of a checkpoint.
        architecture: timm's name of the network, where the file does not tell.
    """

    kind: Kind
    name: str
    sha256: str | None = None
    entry: str | None = None
    architecture: str | None = None


def parse_address(source: Path | str) -> Address:
    """Take the address of weights apart.

    Raises:
        ValueError: It is empty, or an option is unknown or malformed.

    >>> parse_address("timm:resnet50.a1_in1k").name
    'resnet50.a1_in1k'
    >>> parse_address("checkpoint.pth#entry=state_dict_ema").entry
    'state_dict_ema'
    """
    text = str(source)
    if not text.strip():
        raise ValueError(
            f"{text!r} names no weights: give a name (zoo list weights), a file, a run folder, an address, "
            "or timm:NAME, torchvision:NAME, hf:OWNER/NAME"
        )
    address, mark, tail = text.rpartition("#")
    if not mark or "=" not in tail or isinstance(source, Path):
        address, tail = text, ""
    options = dict(parse_qsl(tail, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise ValueError(
                f"{text}: unknown option {name!r}.{suggest(name, list(OPTIONS))} Known: {', '.join(OPTIONS)}"
            )
    check_digest(options.get("sha256"))
    prefix, _, rest = address.partition(":")
    if prefix in {"timm", "torchvision", "hf"}:
        return Address(prefix, rest, **options)  # type: ignore[arg-type] # a Literal is not narrowed by `in`
    if "://" in address:
        path = address.partition("?")[0]
        return Address("card" if path.endswith(".yaml") else "url", address, **options)
    return Address("card" if _has_card(Path(address)) else "file", address, **options)


def _has_card(path: Path) -> bool:
    """Tell a name, a run folder, a card, and tensors beside their card from a foreign file."""
    if path.suffix == ".safetensors":
        return path.with_suffix(".yaml").is_file()
    return (path.suffix.lower() not in PICKLE_SUFFIXES and not path.is_file()) or path.suffix == ".yaml"
