"""Data sets by name: built in, CIFAR, ImageNet, or a folder of images."""

from typing import TYPE_CHECKING, Any

from zoo.registry import DATASETS, suggest

if TYPE_CHECKING:
    from zoo.data.data_module import ImageDataModule

__all__ = ["create_data", "list_data"]


def list_data() -> list[str]:
    """Return the names that :func:`create_data` takes, sorted."""
    return list(DATASETS)


def create_data(name: str, **options: Any) -> "ImageDataModule":
    """Create the data module registered as ``name``.

    Args:
        name: One of :func:`list_data`.
        **options: Keyword arguments of the registered class.

    Raises:
        ValueError: Unknown name or option, or a value out of its range; the nearest known name is given.
    """
    import inspect

    factory = DATASETS[name]
    known = list(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            near = suggest(option, known)
            raise ValueError(f"data set {name!r} has no option {option!r}.{near} Known: {', '.join(known)}")
    return factory(**options)
