"""Data sets by name: built in, CIFAR, ImageNet, a folder of images; scenes and images with captions."""

from typing import Any

from zoo.registry import CAPTION_DATASETS, DATASETS, Registry, suggest

__all__ = ["create_data", "data_registry", "list_caption_data", "list_data"]


def list_data() -> list[str]:
    """Return the names of the data sets with classes, sorted."""
    return list(DATASETS)


def list_caption_data() -> list[str]:
    """Return the names of the data sets with captions, sorted."""
    return list(CAPTION_DATASETS)


def data_registry(name: str) -> Registry:
    """Return where a data set is registered; an unknown one would stand among those with classes."""
    return CAPTION_DATASETS if name in CAPTION_DATASETS else DATASETS


def create_data(name: str, **options: Any) -> Any:
    """Create the data module registered as ``name``.

    Args:
        name: One of :func:`list_data` or :func:`list_caption_data`.
        **options: Keyword arguments of the registered class.

    Raises:
        ValueError: Unknown name or option, or a value out of its range; the nearest known name is given.
    """
    import inspect

    factory = data_registry(name)[name]
    known = list(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            near = suggest(option, known)
            raise ValueError(f"data set {name!r} has no option {option!r}.{near} Known: {', '.join(known)}")
    return factory(**options)
