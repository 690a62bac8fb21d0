"""The card beside a weight file: what the tensors are, what made them, and how to know them again."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from zoo.registry import suggest
from zoo.serialization import format_yaml, read_yaml

FORMAT_VERSION = 1
RUN_CARD = "weights.yaml"
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
EPOCHS = ("selected_epoch", "last_epoch")


@dataclass(frozen=True, kw_only=True)
class WeightCard:
    """Everything needed to rebuild, check and judge a set of weights; the content of one YAML file.

    Args:
        model: Keyword arguments of :func:`zoo.create_model`, ``name`` among them.
        tensors: ``file`` (beside the card), ``sha256``, ``num_parameters``, ``dtype``; ``url`` where the file is
            fetched from when it is not beside the card.
        preprocessing: What :class:`zoo.preprocessing.Preprocessing` is rebuilt from.
        data: ``name``, ``split`` the metrics were measured on, ``class_names`` in the order of the logits,
            ``options`` of the data module, numbers of images.
        metrics: Figures of the ``selected_epoch`` (best on validation images) and of the ``last_epoch``, accuracies
            as fractions; ``stored`` names the one whose weights the file holds.
        cost: Parameters, MACs, and what training took.
        training: The whole configuration of the run, or ``None`` for weights from elsewhere.
        seed: The run's seed.
        versions: Software that trained the weights, or converted those from elsewhere.
        hardware: Machine that trained the weights; ``None`` in each entry where it is not known.
        commit: ``id`` and ``dirty`` of the code, or ``None``.
        fingerprint: Logits of a fixed input, see :func:`zoo.pretrained.check_fingerprint`.
        licence: SPDX name of the licence of the weights.
        source: Who or what made the weights.
        command: The command line of the run.
        path: The file the card was read from or written to; not part of its content.
    """

    model: dict[str, Any]
    tensors: dict[str, Any]
    preprocessing: dict[str, Any]
    data: dict[str, Any]
    metrics: dict[str, Any]
    cost: dict[str, Any]
    training: dict[str, Any] | None
    seed: int | None
    versions: dict[str, Any]
    hardware: dict[str, Any]
    commit: dict[str, Any] | None
    fingerprint: dict[str, Any]
    licence: str
    source: str
    command: str | None
    path: Path | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_card(self)

    @property
    def name(self) -> str:
        """What the weights are called: the card's file name without ``.yaml``, for a run the name of its folder."""
        if self.path is None:
            return str(self.model["name"])
        return self.path.absolute().parent.name if self.path.name == RUN_CARD else self.path.stem

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in the order of the logits."""
        return tuple(self.data["class_names"])

    @property
    def input_size(self) -> tuple[int, int, int]:
        """Channels, height and width of the image the model is evaluated on."""
        return int(self.model.get("in_channels", 3)), self.preprocessing["height"], self.preprocessing["width"]

    @property
    def claim(self) -> dict[str, Any]:
        """The metrics of the weights in the file."""
        return self.metrics[self.metrics["stored"]]

    def preprocess(self, image: Any) -> torch.Tensor:
        """Turn a PIL image, or a uint8 tensor ``(channels, height, width)``, into what the model takes."""
        from zoo.preprocessing import Preprocessing  # it brings PIL and torchvision, which a card alone never needs

        return Preprocessing.from_dict(self.preprocessing)(image)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the card's file."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "path"}
        return {"format": FORMAT_VERSION, **content}

    def to_yaml(self) -> str:
        """Return the text of the card's file."""
        return format_yaml(self.to_dict())


def read_card(path: Path | str) -> WeightCard:
    """Read a card and check that it is whole; touches no tensor.

    Raises:
        ValueError: The file is no card, or one whose checks could not be trusted (no full SHA-256, say).
    """
    path = Path(path)
    content = read_yaml(path)
    if not isinstance(content, dict) or "format" not in content:
        raise ValueError(f"{path} is not a weight card: it has no 'format'")
    version = content.pop("format")
    if version != FORMAT_VERSION:
        raise ValueError(f"{path} has card format {version!r}; this version of the zoo reads format {FORMAT_VERSION}")
    known = [field.name for field in dataclasses.fields(WeightCard) if field.name != "path"]
    for name in content:
        if name not in known:
            raise ValueError(f"{path}: unknown section {name!r}.{suggest(name, known)} Known: {', '.join(known)}")
    missing = [name for name in known if name not in content]
    if missing:
        raise ValueError(f"{path} lacks: {', '.join(missing)}")
    try:
        return WeightCard(**content, path=path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_card(card: WeightCard) -> None:
    """Raise ValueError where a section lacks what loading, checking or reporting relies on."""
    needed: dict[str, dict[str, type | tuple[type, ...]]] = {
        "model": {"name": str, "num_classes": int},
        "tensors": {"file": str, "sha256": str, "num_parameters": int, "dtype": str},
        "preprocessing": {"height": int, "width": int},
        "data": {"name": str, "split": str, "class_names": list},
        "metrics": {"stored": str},
        "cost": {},
        "versions": {},
        "hardware": {},
        "fingerprint": {"input": list, "logits": list, "tolerance": float},
    }
    for section, entries in needed.items():
        content = getattr(card, section)
        if not isinstance(content, dict):
            raise ValueError(f"section {section} must be a mapping, not {type(content).__name__}")
        for entry, kind in entries.items():
            if not isinstance(content.get(entry), kind):
                raise ValueError(f"{section}.{entry} must be of type {_words(kind)}, not {content.get(entry)!r}")
    if not SHA256_PATTERN.fullmatch(card.tensors["sha256"]):
        raise ValueError(f"tensors.sha256 must be 64 lower-case hexadecimal digits, not {card.tensors['sha256']!r}")
    file = card.tensors["file"]
    if not file.endswith(".safetensors") or re.search(r"[/\\]", file):
        raise ValueError(f"tensors.file must name a .safetensors file beside the card, not {file!r}")
    url = card.tensors.get("url")
    if url is not None and not str(url).startswith(("http://", "https://")):
        raise ValueError(f"tensors.url must be an http or https address, not {url!r}")
    check_class_names(card.class_names, card.model["num_classes"])
    check_metrics(card.metrics)


def check_class_names(class_names: tuple[str, ...], num_classes: int) -> None:
    """Raise ValueError unless there is one distinct text per class."""
    if len(class_names) != num_classes:
        raise ValueError(f"data.class_names has {len(class_names)} names, but model.num_classes is {num_classes}")
    wrong = [name for name in class_names if not isinstance(name, str)]
    if wrong:
        raise ValueError(f"data.class_names must be text, not {wrong[0]!r}")
    if len(set(class_names)) != num_classes:
        raise ValueError("data.class_names must differ from each other")


def check_metrics(metrics: Mapping[str, Any]) -> None:
    """Raise ValueError unless both epochs are there and every accuracy is a fraction."""
    for epoch in EPOCHS:
        if not isinstance(metrics.get(epoch), dict):
            raise ValueError(f"metrics.{epoch} must be a mapping of figures, not {metrics.get(epoch)!r}")
        for name in ("top1", "top5", "macro_accuracy"):
            accuracy = metrics[epoch].get(name, 0.0)
            if not (isinstance(accuracy, int | float) and 0 <= accuracy <= 1):
                raise ValueError(f"metrics.{epoch}.{name} must be a fraction from 0 to 1, not {accuracy!r}")
    if metrics.get("stored") not in EPOCHS:
        raise ValueError(f"metrics.stored must be {' or '.join(EPOCHS)}, not {metrics.get('stored')!r}")


def _words(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(each.__name__ for each in kinds)
