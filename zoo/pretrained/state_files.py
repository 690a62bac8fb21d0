"""Tensors out of files that others made: safetensors, and pickles as far as they hold nothing but data.

A pickle can run code when it is opened. Here it is read by torch's restricted unpickler, which builds tensors, plain
values and a few inert records, and refuses everything else unopened.
"""

import argparse
import pathlib
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from zoo.registry import suggest

PICKLE_SUFFIXES = frozenset({".pth", ".pt", ".th", ".ckpt", ".bin", ".pkl", ".pickle", ".tar"})

OUTER_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "ema_model.")
"""What wrappers put before every name; none of our parts or of those we have a name map for is called so."""

INNER_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""What wrappers of single parts put into the middle of a name."""

AVERAGES = ("ema", "average", "swa")
"""Words by which an entry of a checkpoint is known to hold averaged weights."""

IGNORED_NAMES = {
    "n_averaged": "how many models an average is made of",
    "total_ops": "a counter of a profiler",
    "total_params": "a counter of a profiler",
}
"""Last parts of names that are no weights, though wrappers and tools put them among these."""


@dataclass(frozen=True)
class StateFile:
    """The tensors of a file under bare names, and what was done to get them.

    Args:
        tensors: The state dict.
        entry: Which entry of a checkpoint it was, dotted; ``None`` for a file that is a state dict.
        peeled: The wrappers' prefixes that were taken off, in the order they stood.
        ignored: Names left out, each with the reason.
    """

    tensors: dict[str, Tensor]
    entry: str | None
    peeled: tuple[str, ...]
    ignored: dict[str, str]


def read_state_file(path: Path | str, *, entry: str | None = None) -> StateFile:
    """Read a file of tensors without running anything in it.

    Args:
        path: A safetensors file, or a pickle of torch (``.pth``, ``.pt``, ``.th``, ``.ckpt``, ``.bin``); the content
            decides which, not the name.
        entry: Which entry of a checkpoint holds the weights, such as ``"state_dict_ema"``; needed where several do.

    Raises:
        ValueError: There is no such file, it is neither kind, holds no weights or several, would run code, or only
            some of its names have a wrapper's prefix.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if is_safetensors(path):
        if entry is not None:
            raise ValueError(f"entry {entry!r} has no effect: {path} is a safetensors file, one set of tensors")
        try:
            found: dict[str, Tensor] = safetensors.torch.load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
        name = None
    else:
        name, found = choose_entry(read_pickle(path), entry, str(path))
    ignored = {name: reason for name in found if (reason := IGNORED_NAMES.get(name.rpartition(".")[2]))}
    try:
        tensors, peeled = peel_prefixes({name: tensor for name, tensor in found.items() if name not in ignored})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return StateFile(tensors, name, peeled, ignored)


def is_safetensors(path: Path) -> bool:
    """Tell by the first bytes: the length of a header, and the brace that opens it."""
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size


def read_pickle(path: Path) -> Any:
    """Unpickle with torch's restricted reader: tensors, plain values, and the inert records of :func:`_inert_records`.

    Raises:
        ValueError: The file would run code, or is no file of torch.
    """
    try:
        # Warnings are about old formats and pickle protocols, which are read all the same.
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals(_inert_records()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if asked is None:
            raise ValueError(f"{path} is neither a safetensors file nor plain tensors that torch.save wrote") from None
        raise ValueError(
            f"{path} holds more than tensors and plain values: opening it would run {asked[1]}, so it is refused; "
            "ask its maker for a state dict or a safetensors file"
        ) from None
    except Exception as error:  # damaged bytes end in any of a dozen kinds
        if "TorchScript" in str(error):
            raise ValueError(f"{path} is a TorchScript program, not a state dict, and would run code") from None
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is damaged, or no file that torch.save wrote: {reason}") from None


def _inert_records() -> list[Any]:
    """Return what checkpoints often hold beside tensors and what only stores values when it is built.

    A path becomes a pure one, so that a file from another system opens too.
    """
    dtypes = [type(np.dtype(code)) for code in ("f8", "f4", "f2", "i8", "i4", "u1", "?")]
    paths = [
        (pure, f"{module}.{kind}")
        for module in ("pathlib", "pathlib._local")
        for system, pure in (("Posix", pathlib.PurePosixPath), ("Windows", pathlib.PureWindowsPath))
        for kind in (f"{system}Path", f"Pure{system}Path")
    ]
    scalar = np._core.multiarray.scalar  # type: ignore[attr-defined] # how NumPy writes a single number
    return [argparse.Namespace, np.dtype, *dtypes, scalar, (scalar, "numpy.core.multiarray.scalar"), *paths]


def choose_entry(content: Any, entry: str | None, source: str) -> tuple[str | None, dict[str, Tensor]]:
    """Return the name and the tensors of the one set of weights in a checkpoint, or of the one called ``entry``.

    Raises:
        ValueError: There is none, or several and no ``entry``, or none of that name.
    """
    found = dict(_state_dicts(content))
    names = ", ".join(name for name in found if name) or "none"
    if entry is not None:
        if entry not in found or not entry:
            raise ValueError(f"{source} has no weights under {entry!r}.{suggest(entry, list(found))} It has: {names}")
        return entry, found[entry]
    if not found:
        keys = f"its keys are {', '.join(map(str, list(content)[:8]))}" if isinstance(content, Mapping) else ""
        raise ValueError(f"{source} holds no named tensors, but a {type(content).__name__}; {keys}".rstrip("; "))
    if len(found) > 1:
        averaged = [name for name in found if any(word in name.lower() for word in AVERAGES)]
        hint = f" ({', '.join(averaged)} averaged)" if averaged else ""
        raise ValueError(f"{source} holds several sets of weights: {names}{hint}; choose one with entry=NAME")
    ((name, tensors),) = found.items()
    return name or None, tensors


def _state_dicts(content: Any, name: str = "", depth: int = 0) -> list[tuple[str, dict[str, Tensor]]]:
    """List every mapping of names to tensors, at the top or up to two levels below, with its dotted name."""
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        return []
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if tensors and any("." in key for key in tensors):
        return [(name, tensors)]
    inner = []
    for key, value in content.items():
        if depth < 2:
            inner += _state_dicts(value, f"{name}.{key}" if name else key, depth + 1)
    return inner


def peel_prefixes(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Take wrappers' prefixes off all names, in whatever order and however often they are stacked.

    Raises:
        ValueError: Some names have the prefix and some have not, or two names become one.

    >>> peel_prefixes({"module.model._orig_mod.layer1._orig_mod.0.bias": torch.zeros(1)})[1]
    ('module.', 'model.', '_orig_mod.', '_orig_mod.')
    """
    peeled: list[str] = []
    names = {name: name for name in tensors}
    while names:
        prefix = next((each for each in OUTER_PREFIXES if any(name.startswith(each) for name in names.values())), None)
        if prefix is None:
            break
        bare = [name for name in names.values() if not name.startswith(prefix)]
        if bare:
            raise ValueError(
                f"{len(names) - len(bare)} of {len(names)} names begin with {prefix!r}, {len(bare)} do not "
                f"({', '.join(bare[:3])}{', ...' if len(bare) > 3 else ''}): two sets of weights seem to be mixed"
            )
        peeled.append(prefix)
        names = {original: name.removeprefix(prefix) for original, name in names.items()}
    for wrapper in sorted(INNER_WRAPPERS):
        if any(wrapper in name.split(".") for name in names.values()):
            peeled.append(f"{wrapper}.")
    result: dict[str, Tensor] = {}
    for original, name in names.items():
        bare_name = ".".join(part for part in name.split(".") if part not in INNER_WRAPPERS)
        if bare_name in result:
            raise ValueError(f"two tensors are called {bare_name!r} once the prefixes {', '.join(peeled)} are off")
        result[bare_name] = tensors[original]
    return result, tuple(peeled)
