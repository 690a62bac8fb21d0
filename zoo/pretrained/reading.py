"""The tensors of any source, as it names them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo.pretrained.addresses import Address, parse_address
from zoo.pretrained.card import WeightCard
from zoo.pretrained.downloading import fetch
from zoo.pretrained.hub import Published, fetch_repository, fetch_timm, fetch_torchvision
from zoo.pretrained.loading import load_card, read_tensors
from zoo.pretrained.name_maps import Original, find_original
from zoo.pretrained.state_files import read_state_file
from zoo.serialization import sha256_of


@dataclass(frozen=True)
class FoundWeights:
    """Tensors as their source names them, and what is known about them.

    Args:
        source: The source as it was given.
        tensors: The state dict, wrappers' prefixes taken off.
        sha256: Digest of the file.
        original: The published network they are for, if the source says.
        card: The card, for weights of ours.
        entry: Entry of a checkpoint that was read.
        peeled: Prefixes that were taken off.
        ignored: Names left out, each with the reason.
        facts: What the publisher states, see :class:`zoo.pretrained.hub.Published`.
    """

    source: str
    tensors: dict[str, Tensor]
    sha256: str
    original: Original | None = None
    card: WeightCard | None = None
    entry: str | None = None
    peeled: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_weights(source: Path | str, *, folder: Path | str | None = None) -> FoundWeights:
    """Read what a source holds, after fetching it if it is not on this machine.

    Args:
        source: A name out of :func:`zoo.list_weights`, a card, a run folder, a file of tensors, an http address of
            either, ``timm:NAME``, ``torchvision:NAME`` or ``hf:OWNER/NAME[@REVISION][:FILE]``; then, where needed,
            ``#`` and options joined by ``&``: ``sha256=``, ``entry=`` (of a checkpoint), ``architecture=`` (timm's
            name of the network).
        folder: Where to look names up.

    Raises:
        ValueError: There are no such weights, or they are not what they should be.
        DownloadError: They cannot be fetched.
    """
    parsed = parse_address(source)
    if parsed.kind == "card":
        _refuse_options(parsed, "entry", "architecture")
        card = load_card(source, folder=folder)
        return FoundWeights(str(source), read_tensors(card), card.tensors["sha256"], card=card)
    published = _locate(parsed)
    digest = sha256_of(published.path)
    if parsed.sha256 not in (None, digest):
        raise ValueError(f"{published.path} has sha256 {digest}, expected {parsed.sha256}")
    file = read_state_file(published.path, entry=parsed.entry)
    return FoundWeights(
        str(source),
        file.tensors,
        digest,
        original=published.original,
        entry=file.entry,
        peeled=file.peeled,
        ignored=file.ignored,
        facts=published.facts,
    )


def _locate(address: Address) -> Published:
    """Return the file, after a download if need be."""
    if address.kind in {"timm", "torchvision"}:
        _refuse_options(address, "architecture")
        return (fetch_timm if address.kind == "timm" else fetch_torchvision)(address.name)
    original = None if address.architecture is None else find_original("timm", address.architecture)
    if address.kind == "hf":
        published = fetch_repository(address.name)
        if published.original is not None:
            _refuse_options(address, "architecture")
        return Published(published.path, published.original or original, published.facts)
    path = fetch(address.name, sha256=address.sha256) if address.kind == "url" else Path(address.name)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return Published(path, original)


def _refuse_options(address: Address, *names: str) -> None:
    for name in names:
        if getattr(address, name) is not None:
            raise ValueError(f"{name}={getattr(address, name)} has no effect: {address.name} says itself what it is")
