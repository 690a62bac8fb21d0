"""Published weights by name: of timm, of torchvision, and from the Hugging Face Hub."""

import importlib.util
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.pretrained.card import SHA256_PATTERN
from zoo.pretrained.downloading import DownloadError, fetch, is_offline
from zoo.pretrained.name_maps import Original, find_original
from zoo.registry import suggest
from zoo.serialization import sha256_of

TENSOR_FILES = ("model.safetensors", "pytorch_model.bin")
_HUB_ADDRESS = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<file>[\w./-]+))?")


@dataclass(frozen=True)
class Published:
    """A file of weights on this machine, and what its publisher says about it.

    Args:
        path: The file.
        original: The network it is for; ``None`` where the publisher does not say.
        facts: ``licence`` and ``preprocessing``, as far as they are stated.
    """

    path: Path
    original: Original | None
    facts: Mapping[str, Any] = field(default_factory=dict)


def fetch_timm(name: str) -> Published:
    """Return the weights that timm calls ``name``, such as ``resnet50.a1_in1k``.

    Raises:
        ValueError: timm has no such weights, or no network of ours computes the same.
        DownloadError: They cannot be had.
    """
    _check_installed("timm", "timm:")
    import timm
    from timm.data import resolve_data_config

    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        near = suggest(name, timm.list_models())
        raise ValueError(f"timm has no model {architecture!r}.{near}")
    original = find_original("timm", architecture)
    try:
        config = timm.models.get_pretrained_cfg(name)
    except RuntimeError:  # an unknown tag
        config = None
    if config is None or not config.hf_hub_id:
        tags = ", ".join(timm.list_models(f"{architecture}.*", pretrained=True)) or "none"
        raise ValueError(f"timm has no weights {name!r}. Of {architecture} it has: {tags}")
    files = (config.hf_hub_filename,) if config.hf_hub_filename else TENSOR_FILES
    path = fetch_from_hub(config.hf_hub_id, files)
    data = resolve_data_config(config.to_dict(), use_test_size=True)
    _, height, width = data["input_size"]
    preprocessing = {
        "height": height,
        "width": width,
        "mean": list(data["mean"]),
        "std": list(data["std"]),
        "resize": math.floor(max(height, width) / data["crop_pct"]),
        "interpolation": data["interpolation"],
    }
    return Published(path, original, {"licence": config.license, "preprocessing": preprocessing})


def fetch_torchvision(name: str) -> Published:
    """Return the weights that torchvision calls ``name``, such as ``ResNet50_Weights.IMAGENET1K_V2``.

    The first digits of the SHA-256, which stand in the file's name, are checked.

    Raises:
        ValueError: torchvision has no such weights, or no network of ours computes the same.
        DownloadError: They cannot be had.
    """
    from torchvision import models

    classes = {models.get_model_weights(model).__name__: model for model in models.list_models(module=models)}
    model = classes.get(name.partition(".")[0])
    known = [] if model is None else [str(entry) for entry in models.get_model_weights(model)]
    if model is None or name not in known:
        listed = f" It has: {', '.join(known)}" if known else ""
        raise ValueError(f"torchvision has no weights {name!r}.{suggest(name, known or sorted(classes))}{listed}")
    original = find_original("torchvision", model)
    weights = models.get_weight(name)
    digest = re.search(r"-([0-9a-f]{8,})\.", weights.url)
    if digest is None:
        raise ValueError(f"torchvision states no digest for {name}: its address is {weights.url}")
    path = fetch(weights.url, sha256_start=digest[1])
    transforms = weights.transforms()
    preprocessing = {
        "height": transforms.crop_size[0],
        "width": transforms.crop_size[0],
        "mean": list(transforms.mean),
        "std": list(transforms.std),
        "resize": transforms.resize_size[0],
        "interpolation": transforms.interpolation.value,
    }
    return Published(path, original, {"licence": None, "preprocessing": preprocessing})


def fetch_repository(address: str) -> Published:
    """Return the weights of a repository on the Hugging Face Hub.

    A ``config.json`` that names an architecture, as timm writes it, says which network they are for.

    Args:
        address: ``owner/name``, with ``@revision`` and ``:file`` where they are not the usual ones.

    Raises:
        ValueError: The address is malformed, or names a network without a counterpart here.
        DownloadError: The repository has no such file, or cannot be reached.
    """
    match = _HUB_ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"hf:{address} must have the form hf:owner/name, hf:owner/name@revision or hf:owner/name:file")
    repository, revision = match["repository"], match["revision"]
    description = _find_in_hub(repository, "config.json", revision)
    content = {} if description is None else json.loads(description.read_text(encoding="utf-8"))
    architecture = content.get("architecture")
    original = None if architecture is None else find_original("timm", architecture)
    files = (match["file"],) if match["file"] else TENSOR_FILES
    return Published(fetch_from_hub(repository, files, revision), original)


def fetch_from_hub(repository: str, files: tuple[str, ...], revision: str | None = None) -> Path:
    """Return the first of the files that a repository has, from the cache of the Hugging Face Hub or downloaded to it.

    The full SHA-256, by which the Hub names large files, is checked.

    Raises:
        DownloadError: It has none of them, or cannot be reached; or the file has another digest, and is deleted.
    """
    for file in files:
        path = _find_in_hub(repository, file, revision)
        if path is not None:
            blob = path.resolve()
            if SHA256_PATTERN.fullmatch(blob.name) and sha256_of(blob) != blob.name:
                digest = sha256_of(blob)
                blob.unlink()
                raise DownloadError(f"hf:{repository}: {file} has sha256 {digest}, expected {blob.name}: deleted")
            return path
    raise DownloadError(f"hf:{repository} has no {' and no '.join(files)}; name the file: hf:{repository}:FILE")


def _find_in_hub(repository: str, file: str, revision: str | None) -> Path | None:
    """Return the path of a file in the Hub's cache, downloaded if need be; ``None`` when there is no such file."""
    _check_installed("huggingface_hub", "hf:")
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    cached = try_to_load_from_cache(repository, file, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    if cached is not None:  # known not to exist
        return None
    where = f"hf:{repository}{f'@{revision}' if revision else ''}"
    try:
        return Path(hf_hub_download(repository, file, revision=revision, local_files_only=is_offline()))
    except LocalEntryNotFoundError as error:
        if is_offline():
            raise DownloadError(f"{where}: {file} is not in the cache, and requests are switched off") from None
        raise DownloadError(f"{where}: {file} cannot be fetched: {_root_cause(error)}") from None
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError) as error:
        raise DownloadError(f"{where}: {str(error).splitlines()[0]}") from None


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _check_installed(package: str, prefix: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{prefix} needs the package {package}: pip install 'vision-attention-zoo[timm]'")
