"""Find weights by name, check them against their card, and fill a model with them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from zoo.factory import create_model
from zoo.pretrained.card import RUN_CARD, WeightCard, read_card
from zoo.pretrained.fingerprint import compare_fingerprint
from zoo.pretrained.plain_values import to_plain
from zoo.provenance import checkout_folder
from zoo.registry import suggest

PICKLE_SUFFIXES = frozenset({".pth", ".pt", ".th", ".ckpt", ".bin", ".pkl", ".pickle", ".tar"})


def load_pretrained(
    source: Path | str,
    *,
    folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> tuple[nn.Module, WeightCard]:
    """Return a trained model in eval mode, and its card.

    Args:
        source: A name from :func:`list_weights`, a card, its safetensors file, or the folder of a run.
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


def load_into(model: nn.Module, source: Path | str, *, folder: Path | str | None = None) -> WeightCard:
    """Fill a model made by :func:`zoo.create_model` with weights, all of them or none.

    Raises:
        ValueError: The model was built with other arguments than the card's, or a check of
            :func:`load_pretrained` fails; the model keeps its values.
    """
    card = load_card(source, folder=folder)
    config = to_plain(model.config, "model")
    if config["num_classes"] != card.model["num_classes"]:
        raise ValueError(
            f"the model has {config['num_classes']} classes, the weights {card.name!r} have "
            f"{card.model['num_classes']} ({card.data['name']}): pass num_classes={card.model['num_classes']}"
        )
    # What the card leaves out, as one older than an option does, is the default.
    expected = to_plain(build_model(card.model).config, "model")
    differing = [name for name in {**expected, **config} if config.get(name) != expected.get(name)]
    if differing:
        facts = "; ".join(f"{name} is {config.get(name)!r}, not {expected.get(name)!r}" for name in differing)
        raise ValueError(f"the model is not the one the weights {card.name!r} were trained in: {facts}")
    fill_model(model, read_tensors(card), card.name)
    return card


def check_fingerprint(model: nn.Module, card: WeightCard) -> None:
    """Raise ValueError when the model answers the fixed input otherwise than the card says.

    The code may have changed since the weights were trained, though names and shapes fit.
    """
    try:
        compare_fingerprint(model, card.fingerprint)
    except ValueError as error:
        raise ValueError(f"{card.name}: {error}") from None


def load_card(source: Path | str, *, folder: Path | str | None = None) -> WeightCard:
    """Find and read the card of a name, a file or a run folder; see :func:`load_pretrained`."""
    return read_card(find_card(source, folder=folder))


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
    path = Path(source)
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise ValueError(f"{path} is a pickle, which can run code when opened; weights are .safetensors with a card")
    if path.is_dir():
        if not (path / RUN_CARD).is_file():
            raise ValueError(f"{path} holds no {RUN_CARD}: it is not the folder of a finished run")
        return path / RUN_CARD
    if path.suffix in {".yaml", ".safetensors"}:
        for needed in (path, path.with_suffix(".yaml")):
            if not needed.is_file():
                raise ValueError(f"there is no file {needed}")
        return path.with_suffix(".yaml")
    if path.name != str(source):
        raise ValueError(f"there is no file and no folder {path}")
    folders = weight_folders() if folder is None else [_existing_folder(folder)]
    for each in folders:
        if (each / f"{source}.yaml").is_file():
            return each / f"{source}.yaml"
    looked_in = ", ".join(str(each) for each in folders) or "no folder, since none exists"
    known = list_weights(folder)
    near = suggest(str(source), known)
    raise ValueError(f"unknown weights {str(source)!r}.{near} Looked in: {looked_in}. Known: {', '.join(known) or '-'}")


def read_tensors(card: WeightCard) -> dict[str, torch.Tensor]:
    """Return the tensors of a card once their file's SHA-256 is the card's."""
    assert card.path is not None
    path = card.path.with_name(card.tensors["file"])
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
    facts = [
        f"{len(names)} {problem} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})"
        for problem, names in problems.items()
        if names
    ]
    if facts:
        raise ValueError(f"the tensors of {source} do not fit the model: {'; '.join(facts)}")
    model.load_state_dict(dict(state), strict=True)


def build_model(config: Mapping[str, Any]) -> nn.Module:
    """Create the model of a card without disturbing the random state of the caller."""
    with torch.random.fork_rng(devices=[]):
        return create_model(**config)


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters; one that is shared counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _existing_folder(folder: Path | str) -> Path:
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}")
    return Path(folder)
