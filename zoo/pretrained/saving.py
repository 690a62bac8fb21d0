"""Write a model's tensors and card."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import safetensors.torch
import torch
from torch import nn

from zoo.models.parameter_count import count_parameters
from zoo.pretrained.card import WeightCard
from zoo.pretrained.fingerprint import take_fingerprint
from zoo.pretrained.loading import build_model, fill_model
from zoo.pretrained.plain_values import to_plain
from zoo.provenance import describe_commit, describe_hardware, describe_versions
from zoo.serialization import write_atomically


def save_weights(
    model: nn.Module,
    card_path: Path | str,
    *,
    preprocessing: Any,
    data: Mapping[str, Any],
    metrics: Mapping[str, Any],
    stored: Literal["selected_epoch", "last_epoch"],
    cost: Mapping[str, Any] | None = None,
    training: Any = None,
    seed: int | None = None,
    hardware: Mapping[str, Any] | None = None,
    licence: str = "Apache-2.0",
    source: str = "trained with this project's train.py",
    command: str | None = None,
) -> WeightCard:
    """Write a model's tensors as safetensors and its card as YAML; load back from the bytes what is written.

    The tensors go beside the card under the same name. A model rebuilt from the card takes them and gives the
    logits of the fingerprint before anything reaches the disk, so a card that could not be loaded is not written.

    Args:
        model: Made by :func:`zoo.create_model`; may be wrapped by ``torch.compile``, an average or DDP, and may lie
            on any device in any memory format.
        card_path: Where the card goes; ends in ``.yaml``.
        preprocessing: A :class:`zoo.preprocessing.Preprocessing` or its dict.
        data: ``name``, ``split``, ``class_names``, and whatever else describes the data.
        metrics: ``selected_epoch`` and ``last_epoch``, each a mapping of figures.
        stored: Which of the two ``model`` holds the weights of.
        cost: Parameters, MACs, what training took.
        training: The configuration of the run; paths, enums, numpy scalars and dataclasses become plain values.
        seed: The run's seed.
        hardware: The machine of the run; this one, with its first accelerator, when not given.
        licence: SPDX name.
        source: Who or what made the weights.
        command: The command line of the run.

    Raises:
        ValueError: The model was not made by ``create_model``, was changed since, or gives NaN; a section is wrong.
        OSError: The files cannot be written; earlier ones stay.
    """
    path = Path(card_path)
    if path.suffix != ".yaml":
        raise ValueError(f"card_path must end in .yaml, not {path.name!r}")
    bare = unwrap_model(model)
    config = getattr(bare, "config", None)
    if not isinstance(config, dict):
        raise ValueError(f"{type(bare).__name__} has no config: only a model made by create_model can be saved")
    config = to_plain(config, "model")
    if hasattr(preprocessing, "to_dict"):
        preprocessing = preprocessing.to_dict()
    preprocessing = to_plain(preprocessing, "preprocessing")
    content = safetensors.torch.save(collect_state(bare), metadata={"format": "pt"})
    rebuilt = build_model(config)
    fill_model(rebuilt, safetensors.torch.load(content), path.name)
    input_size = (config.get("in_channels", 3), preprocessing["height"], preprocessing["width"])
    floating = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in bare.parameters()})
    card = WeightCard(
        model=config,
        tensors={
            "file": f"{path.stem}.safetensors",
            "sha256": hashlib.sha256(content).hexdigest(),
            "num_parameters": count_parameters(rebuilt),
            "dtype": ", ".join(floating),
        },
        preprocessing=preprocessing,
        data=to_plain(data, "data"),
        metrics={"stored": stored, **to_plain(metrics, "metrics")},
        cost=to_plain(cost or {}, "cost"),
        training=to_plain(training, "training"),
        seed=seed,
        versions=describe_versions(),
        hardware=to_plain(hardware or describe_hardware(), "hardware"),
        commit=describe_commit(),
        fingerprint=take_fingerprint(rebuilt, input_size),
        licence=licence,
        source=source,
        command=command,
        path=path,
    )
    write_atomically(path.with_name(card.tensors["file"]), content)
    write_atomically(path, card.to_yaml())
    return card


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the model inside ``torch.compile``, DDP and weight-averaging wrappers, in any order."""
    wrappers = (
        nn.parallel.DistributedDataParallel,
        nn.DataParallel,
        torch.optim.swa_utils.AveragedModel,
    )
    while True:
        if isinstance(model, wrappers):
            model = cast(nn.Module, model.module)
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = cast(nn.Module, model._orig_mod)
        else:
            return model


def collect_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the state dict as contiguous CPU copies, which safetensors needs; compiled parts leave no trace."""
    return {
        name.replace("_orig_mod.", ""): tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
