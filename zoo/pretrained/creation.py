"""Models made with, or filled with, the weights of any source."""

import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.factory import create_model
from zoo.models.backbone import Backbone, attention_registry
from zoo.models.captioner import Captioner
from zoo.pretrained.adaptation import adapt_weights, check_config, has_gates, to_our_names
from zoo.pretrained.name_maps import Weights, find_family
from zoo.pretrained.reading import FoundWeights, read_weights
from zoo.pretrained.report import LoadReport

_logger = logging.getLogger(__name__)


def load_into(
    model: Backbone, source: Path | str, *, folder: Path | str | None = None, allow_fresh_gates: bool = False
) -> LoadReport:
    """Fill a model made by :func:`zoo.create_model` with weights, all of it or none, and return what was done.

    Args:
        model: Its head, its first convolution and its gates may differ from the source's, as
            :func:`zoo.pretrained.adaptation.adapt_weights` says; nothing else may.
        source: As in :func:`zoo.pretrained.reading.read_weights`.
        folder: Where to look names up.
        allow_fresh_gates: Accept gates that the source does not have and that change the features.

    Raises:
        ValueError: The weights are for another network, or a tensor is left without an explanation; the model keeps
            its values.
        DownloadError: The weights cannot be fetched.
    """
    found = read_weights(source, folder=folder)
    weights = to_our_names(found, model.config["name"])
    return _fill(model, found, weights, allow_fresh_gates=allow_fresh_gates)


def create_pretrained(
    name: str,
    source: Path | str,
    *,
    folder: Path | str | None = None,
    attention: str | None = None,
    attention_args: Mapping[str, Any] | None = None,
    num_classes: int | None = None,
    **options: Any,
) -> tuple[Backbone, LoadReport]:
    """Create a model of ours with the weights of a source, and return what was done with every tensor.

    Args:
        name: A name out of :func:`zoo.list_models`.
        source: As in :func:`zoo.pretrained.reading.read_weights`.
        folder: Where to look names up.
        attention: As in :func:`zoo.create_model`. Gates that the source does not have start as the identity.
        attention_args: Options of the mechanism; ``identity_start=False`` makes gates that the source does not have
            start as they would without weights, and change the features.
        num_classes: Number of logits; ``None`` for the source's.
        options: The other arguments of :func:`zoo.create_model`.

    Raises:
        ValueError: A name or a value is not known, or the weights do not fit.
        DownloadError: The weights cannot be fetched.
    """
    found = read_weights(source, folder=folder)
    weights = to_our_names(found, name)
    if num_classes is None:
        num_classes = _count_classes(name, weights)
    allow_fresh_gates = False
    if attention not in (None, "none") and not has_gates(weights):
        args = dict(attention_args or {})
        if "identity_start" in inspect.signature(attention_registry(name)[attention]).parameters:
            args.setdefault("identity_start", True)
        allow_fresh_gates = args.get("identity_start") is False
        attention_args = args
    model = create_model(name, attention=attention, attention_args=attention_args, num_classes=num_classes, **options)
    return model, _fill(model, found, weights, allow_fresh_gates=allow_fresh_gates)


def load_encoder(captioner: Captioner, source: Path | str, *, folder: Path | str | None = None) -> LoadReport:
    """Fill the encoder of a captioner with weights of a classifier, and return what was done with every tensor.

    The classifier's head, and stages that the encoder ends before, are left out.

    Args:
        captioner: Made by :func:`zoo.create_captioner`.
        source: As in :func:`zoo.pretrained.reading.read_weights`.
        folder: Where to look names up.

    Raises:
        ValueError: The weights are for another network, or a tensor is left without an explanation.
        DownloadError: The weights cannot be fetched.
    """
    config = captioner.config
    backbone, report = create_pretrained(
        config["encoder"], source, folder=folder, in_channels=config["in_channels"], **config["encoder_args"]
    )
    state = backbone.state_dict()
    captioner.encoder.load_state_dict({name: state[name] for name in captioner.encoder.state_dict()})
    return report


def _count_classes(name: str, weights: Weights) -> int | None:
    family = find_family(name)
    head = None if family is None else weights.get(f"{family.head}.weight")
    return None if head is None else head.tensor.shape[0]


def _fill(model: Backbone, found: FoundWeights, weights: Weights, *, allow_fresh_gates: bool) -> LoadReport:
    check_config(model, found)
    state, report = adapt_weights(model, found, weights, allow_fresh_gates=allow_fresh_gates)
    model.load_state_dict(state, strict=True)
    if not report.is_plain:
        _logger.warning(report.summary())
    return report
