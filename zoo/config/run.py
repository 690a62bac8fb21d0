"""The typed, frozen description of one run."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace

from zoo.config.optimization import OptimizationConfig
from zoo.serialization import format_yaml


@dataclass(frozen=True)
class RunConfig:
    """One run: everything that decides its result.

    Args:
        model: ``name`` and the keyword arguments of :func:`zoo.create_model`.
        data: ``name`` and the keyword arguments of :func:`zoo.data.create_data`.
        optimization: How the weights are trained.
        trainer: Keyword arguments of the Lightning ``Trainer``.
        seed: Of the initial weights, the order of the images and every augmentation.
        output_dir: Folder under which the run gets its own folder, ``<data>/<model>_<attention>/seed<seed>``.
        run_dir: The run's folder itself, instead of one under ``output_dir``.
        overwrite: Whether a run that is already in ``run_dir`` may be deleted.
        weights_dir: Folder that receives a copy of the final weights and card, named for the model and data.
        channels_last: Keep images and convolution weights in channels-last memory order.
        compile: Compile the model with ``torch.compile``.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    output_dir: str = "runs"
    run_dir: str | None = None
    overwrite: bool = False
    weights_dir: str | None = None
    channels_last: bool = True
    compile: bool = False

    @property
    def title(self) -> str:
        """The model and its attention, as files are named: ``resnet20_cbam``."""
        attention = self.model.get("attention")
        return self.model["name"] + (f"_{attention}" if attention else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested values, in the layout of the YAML file."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["optimization"] = dataclasses.asdict(self.optimization)
        for section in ("model", "data", "trainer"):
            values[section] = plain(values[section])
        return values

    def to_yaml(self) -> str:
        """Return the text of a config file that reads back as this config."""
        return format_yaml(self.to_dict())


def plain(value: Any) -> Any:
    """Turn what a parser produced (namespaces, tuples, paths) into what YAML holds."""
    if isinstance(value, Namespace):
        return plain(value.as_dict())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def native_precision(accelerator: str) -> str:
    """Return ``bf16-mixed`` where the hardware multiplies bfloat16 matrices itself, else ``32-true``."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if accelerator in ("auto", "cpu") and not (accelerator == "auto" and torch.backends.mps.is_available()):
        native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return "bf16-mixed" if native else "32-true"
    return "32-true"
