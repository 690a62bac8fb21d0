"""Names and what they stand for: attentions, models and data sets register here and are looked up by name."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Registered = TypeVar("Registered", bound=Callable[..., Any])


def suggest(name: str, known: list[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, or an empty string when none is near.

    >>> suggest("resnet2O", ["resnet20", "mobilenet_v2"])
    " Did you mean 'resnet20'?"
    """
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


class Registry(Mapping[str, Callable[..., Any]]):
    """A mapping from a short name to the class or function that builds the thing.

    The modules of ``package`` are imported at the first look-up, so a file placed there is found without any
    list to edit, and importing the registry itself imports nothing.

    Args:
        kind: What is registered, in the singular, for error messages.
        package: Dotted name of the package whose modules register here.

    >>> shapes = Registry("shape")
    >>> @shapes.register("square")
    ... def square(): ...
    >>> shapes["sqare"]
    Traceback (most recent call last):
    ...
    ValueError: unknown shape 'sqare'. Did you mean 'square'? Known: square
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._discovered = package is None
        self._entries: dict[str, Callable[..., Any]] = {}

    def register(self, name: str) -> Callable[[Registered], Registered]:
        """Return a decorator that files a class or function under ``name``.

        Raises:
            ValueError: The name is taken by something else.
        """

        def file(entry: Registered) -> Registered:
            present = self._entries.get(name)
            # A module that is reloaded registers its own entry again; two different things never share a name.
            if present is not None and _origin(present) != _origin(entry):
                raise ValueError(f"{self.kind} {name!r} is already registered by {'.'.join(_origin(present))}")
            self._entries[name] = entry
            return entry

        return file

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        assert self._package is not None
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")

    def __getitem__(self, name: str) -> Callable[..., Any]:
        self._discover()
        try:
            return self._entries[name]
        except KeyError:
            known = sorted(self._entries)
            others = [registry.kind for registry in REGISTRIES if registry is not self and name in registry]
            hint = f" It names something else: {others[0]} {name!r}." if others else suggest(name, known)
            raise ValueError(f"unknown {self.kind} {name!r}.{hint} Known: {', '.join(known)}") from None

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._discover()
        return len(self._entries)


def _origin(entry: Callable[..., Any]) -> tuple[str, str]:
    return entry.__module__, entry.__qualname__


ATTENTION = Registry("attention", "zoo.attention.feature_map")
TOKEN_ATTENTION = Registry("token attention", "zoo.attention.token")
MODELS = Registry("model", "zoo.models")
DATASETS = Registry("data set", "zoo.data")
CAPTIONERS = Registry("captioner", "zoo.models")
CAPTION_DATASETS = Registry("caption data set", "zoo.data")
REGISTRIES = (ATTENTION, TOKEN_ATTENTION, MODELS, DATASETS, CAPTIONERS, CAPTION_DATASETS)
