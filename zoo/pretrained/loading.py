"""Find weights by name, check them against their card, and fill a model with them."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from zoo.factory import create_captioner, create_model
from zoo.models.captioner import Captioner
from zoo.models.parameter_count import count_parameters
from zoo.pretrained.addresses import parse_address
from zoo.pretrained.card import RUN_CARD, WeightCard, read_card
from zoo.pretrained.downloading import fetch
from zoo.pretrained.fingerprint import compare_fingerprint
from zoo.pretrained.state_files import PICKLE_SUFFIXES
from zoo.provenance import checkout_folder
from zoo.registry import CAPTIONERS, suggest


def load_pretrained(
    source: Path | str,
    *,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> tuple[nn.Module, WeightCard]:
    """Return a trained model in eval mode, and its card.

    Args:
        source: A name from :func:`list_weights`, a card, its safetensors file, the folder of a run, or the http address
            of a card, whose tensors are fetched too.
        folder: Where to look names up, instead of the checkout's ``weights/`` and the installed package's.
        device: Where the model goes.
        verify: Compare the model's logits with the card's fingerprint as well.

    Raises:
        ValueError: Nothing is found; the card is wrong; the file's SHA-256, names or shapes are not the card's.
    """
    card = load_card(source, folder=folder)
    model = build_model(card.model)
    fill_model(model, read_tensors(card), card.name)
    if count_parameters(model) != card.tensors["num_parameters"]:
        raise ValueError(
            f"{card.path}: the model has {count_parameters(model):,} parameters, "
            f"but the card says {card.tensors['num_parameters']:,}"
        )
    if verify:
        check_fingerprint(model, card)
    return model.to(device).eval(), card


def load_classifier(
    source: Path | str,
    *,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> tuple[nn.Module, WeightCard]:
    """Return a trained model that tells classes, and its card; as :func:`load_pretrained` otherwise.

    Raises:
        ValueError: As there, or the weights are a captioner's.
    """
    model, card = load_pretrained(source, folder=folder, device=device, verify=verify)
    if isinstance(model, Captioner):
        raise ValueError(
            f"the weights {card.name!r} are of {card.model['name']}, which writes captions: use zoo caption"
        )
    return model, card


def check_fingerprint(model: nn.Module, card: WeightCard) -> None:
    """Raise ValueError when the model answers the fixed input otherwise than the card says.

    The code may have changed since the weights were trained, though names and shapes fit.
    """
    try:
        compare_fingerprint(model, card.fingerprint)
    except ValueError as error:
        raise ValueError(f"{card.name}: {error}") from None


def load_card(source: Path | str, *, folder: Path | str | None = None) -> WeightCard:
    """Find and read the card of a name, a file, a run folder or an address; see :func:`load_pretrained`."""
    card = read_card(find_card(source, folder=folder))
    if "://" in str(source) and "url" not in card.tensors:  # the tensors lie beside the card there too
        url = urljoin(parse_address(source).name, card.tensors["file"])
        card = dataclasses.replace(card, tensors={**card.tensors, "url": url})
    return card


def list_weights(folder: Path | str | None = None) -> list[str]:
    """Return the names of the weights in a folder, or of those that come with the zoo."""
    folders = weight_folders() if folder is None else [_existing_folder(folder)]
    return sorted({card.stem for each in folders for card in each.glob("*.yaml")})


def weight_folders() -> list[Path]:
    """Return where names are looked up: ``weights/`` of the checkout, then of the installed package."""
    root = checkout_folder()
    candidates = [*([root / "weights"] if root else []), Path(__file__).resolve().parent.parent / "weights"]
    return [folder for folder in candidates if folder.is_dir()]


def find_card(source: Path | str, *, folder: Path | str | None = None) -> Path:
    """Return the card's path; raise ValueError that says where it was looked for and what name is near."""
    address = parse_address(source)
    if "://" in address.name and address.kind == "card":
        return fetch(address.name, sha256=address.sha256)
    if address.sha256 is not None:
        raise ValueError(f"sha256 has no effect: the card of {address.name} states the digest of its tensors")
    path = Path(address.name)
    if path.suffix.lower() in PICKLE_SUFFIXES and address.kind == "file":
        raise ValueError(
            f"{path} is a pickle, which can run code when opened; weights are .safetensors with a card, "
            "which zoo convert makes of it"
        )
    if address.kind not in {"card", "file"}:
        raise ValueError(
            f"{source} has no card: zoo convert gives it one, and zoo.create_model(NAME, pretrained=...) needs none"
        )
    if path.is_dir():
        if not (path / RUN_CARD).is_file():
            raise ValueError(f"{path} holds no {RUN_CARD}: it is not the folder of a finished run")
        return path / RUN_CARD
    if path.suffix in {".yaml", ".safetensors"}:
        for needed in (path, path.with_suffix(".yaml")):
            if not needed.is_file():
                raise ValueError(f"there is no file {needed}")
        return path.with_suffix(".yaml")
    if path.name != address.name:
        raise ValueError(f"there is no file and no folder {path}")
    folders = weight_folders() if folder is None else [_existing_folder(folder)]
    for each in folders:
        if (each / f"{address.name}.yaml").is_file():
            return each / f"{address.name}.yaml"
    looked_in = ", ".join(str(each) for each in folders) or "no folder, since none exists"
    known = list_weights(folder)
    near = suggest(address.name, known)
    raise ValueError(
        f"unknown weights {address.name!r}.{near} Looked in: {looked_in}. Known: {', '.join(known) or '-'}"
    )


def read_tensors(card: WeightCard) -> dict[str, torch.Tensor]:
    """Return the tensors of a card once their file's SHA-256 is the card's."""
    assert card.path is not None
    path = card.path.with_name(card.tensors["file"])
    if not path.is_file() and "url" in card.tensors:
        path = fetch(card.tensors["url"], sha256=card.tensors["sha256"])
    if not path.is_file():
        raise ValueError(f"{card.path} names {path.name}, which is not beside it")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != card.tensors["sha256"]:
        raise ValueError(
            f"{path} is not the file its card describes: sha256 {digest}, expected {card.tensors['sha256']}"
        )
    try:
        return safetensors.torch.load(content)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None


def fill_model(model: nn.Module, state: Mapping[str, torch.Tensor], source: str) -> None:
    """Load all tensors into the model; raise ValueError with the lists, before touching it, where they do not fit."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    problems = {
        "missing": [name for name in expected if name not in found],
        "unexpected": sorted(name for name in found if name not in expected),
        "of another shape": [
            f"{name} {found[name]} instead of {shape}"
            for name, shape in expected.items()
            if name in found and found[name] != shape
        ],
    }
    check_problems(problems, source)
    model.load_state_dict(dict(state), strict=True)


def check_problems(problems: Mapping[str, list[str]], source: str) -> None:
    """Raise ValueError with a count and the first names of each kind of problem, if there is any."""
    facts = [
        f"{len(names)} {problem} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})"
        for problem, names in problems.items()
        if names
    ]
    if facts:
        raise ValueError(f"the tensors of {source} do not fit the model: {'; '.join(facts)}")


def build_model(config: Mapping[str, Any]) -> nn.Module:
    """Create the model of a card without disturbing the random state of the caller."""
    with torch.random.fork_rng(devices=[]):
        create = create_captioner if config["name"] in CAPTIONERS else create_model
        return create(**config)


def resolve_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a model, defaults filled in, without memory for its weights."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        resolved: dict[str, Any] = create_model(**config).config
    return resolved


def _existing_folder(folder: Path | str) -> Path:
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}")
    return Path(folder)
