"""Weights for other runtimes: ONNX, a program of torch.export, or bare tensors; checked before they are handed over."""

import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from zoo.pretrained.card import WeightCard
from zoo.pretrained.loading import build_model, fill_model, load_classifier
from zoo.serialization import sha256_of, write_atomically

Format = Literal["onnx", "pt2", "safetensors"]
CHECKED_BATCH_SIZES = (1, 2, 5)
TRACED_BATCH_SIZE = 3  # none of those checked, so that a size baked into the program shows
TOLERANCE = 1e-4
INPUT_NAME, OUTPUT_NAME = "images", "logits"


def export_weights(
    source: Path | str, path: Path | str, *, file_format: Format, folder: Path | str | None = None
) -> dict[str, Any]:
    """Write trained weights for another runtime, with a description beside them, and check what was written.

    The file takes any batch size. It is read back and run on batches of 1, 2 and 5 images, and must give the logits of
    the model to 1e-4 of the largest; only then it takes its name. The description, ``path`` with ``.json`` after it,
    says how images are prepared, what the logits mean, and what was checked.

    Args:
        source: As in :func:`zoo.load_pretrained`; captioners are refused.
        path: Where the file goes.
        file_format: ``"onnx"`` for ONNX runtimes; ``"pt2"`` for ``torch.export.load``; ``"safetensors"`` for the bare
            tensors.
        folder: Where to look names up.

    Returns:
        The description.

    Raises:
        ValueError: The format is unknown, a package for it is not installed, or what was written gives other logits;
            nothing is left behind.
        OSError: The file cannot be written.
    """
    if file_format not in get_args(Format):
        raise ValueError(f"format {file_format!r} must be one of {', '.join(get_args(Format))}")
    path = Path(path)
    model, card = load_classifier(source, folder=folder, verify=True)
    write, read = {"onnx": (write_onnx, read_onnx), "pt2": (write_pt2, read_pt2)}.get(
        file_format, (write_safetensors, read_safetensors)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays, since a runtime may go by it; the folder is that of the target, so that the move is atomic.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
        draft = Path(scratch) / path.name
        write(model, card, draft)
        differences = compare_with_eager(model, read(draft, card), card)
        description = describe_export(card, file_format, draft, differences)
        draft.replace(path)
    write_atomically(Path(f"{path}.json"), json.dumps(description, indent=2) + "\n")
    return description


def compare_with_eager(model: nn.Module, exported: Callable[[Tensor], Tensor], card: WeightCard) -> dict[str, float]:
    """Return by batch size the largest difference of a logit between the exported program and the model.

    Raises:
        ValueError: Shape or logits differ, or the program refuses a batch size.
    """
    differences = {}
    generator = torch.Generator().manual_seed(0)
    for batch_size in CHECKED_BATCH_SIZES:
        images = torch.randn(batch_size, *card.input_size, generator=generator)
        with torch.inference_mode():
            expected = model(images)
        try:
            actual = exported(images)
        except Exception as error:  # each runtime has its own kinds
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(f"the exported {card.name} refuses a batch of {batch_size}: {reason}") from error
        if actual.shape != expected.shape:
            shapes = f"{tuple(actual.shape)}, not {tuple(expected.shape)}"
            raise ValueError(f"the exported {card.name} answers a batch of {batch_size} with {shapes}")
        difference = float((actual - expected).abs().max())
        allowed = TOLERANCE * max(1.0, float(expected.abs().max()))
        if not difference <= allowed:
            raise ValueError(
                f"the exported {card.name} gives other logits for a batch of {batch_size}: they differ by "
                f"{difference:.3g}, more than {allowed:.3g}"
            )
        differences[str(batch_size)] = difference
    return differences


def describe_export(card: WeightCard, file_format: Format, path: Path, differences: dict[str, float]) -> dict[str, Any]:
    """Return what a user of the file must know, as plain values."""
    channels, height, width = card.input_size
    return {
        "weights": card.name,
        "file": path.name,
        "format": file_format,
        "sha256": sha256_of(path),
        "exported_from_sha256": card.tensors["sha256"],
        "input": {"name": INPUT_NAME, "shape": ["batch", channels, height, width], "dtype": "float32"},
        "output": {"name": OUTPUT_NAME, "shape": ["batch", len(card.class_names)], "dtype": "float32"},
        "preprocessing": {"scale": "pixels from 0 to 1, then (pixel - mean) / std", **card.preprocessing},
        "class_names": list(card.class_names),
        "largest_difference_by_batch_size": differences,
        "model": card.model,
        "licence": card.licence,
        "source": card.source,
    }


def write_onnx(model: nn.Module, card: WeightCard, path: Path) -> None:
    """Write an ONNX file whose batch size is free."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        _check_installed(package)
    batch = torch.export.Dim("batch", min=1)
    with warnings.catch_warnings(action="ignore"):  # of the exporter about itself
        program = torch.onnx.export(
            model,
            (torch.randn(TRACED_BATCH_SIZE, *card.input_size),),
            dynamo=True,
            dynamic_shapes=({0: batch},),
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            verbose=False,
        )
    assert program is not None
    program.save(path, external_data=False)


def read_onnx(path: Path, _: WeightCard) -> Callable[[Tensor], Tensor]:
    """Return an ONNX file as a function, in ONNX Runtime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([OUTPUT_NAME], {INPUT_NAME: images.numpy()})[0])


def write_pt2(model: nn.Module, card: WeightCard, path: Path) -> None:
    """Write a program of ``torch.export`` whose batch size is free."""
    batch = torch.export.Dim("batch", min=1)
    images = torch.randn(TRACED_BATCH_SIZE, *card.input_size)
    program = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)


def read_pt2(path: Path, _: WeightCard) -> Callable[[Tensor], Tensor]:
    """Return a program of ``torch.export`` as a function."""
    module = torch.export.load(path).module()

    def run(images: Tensor) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = module(images)
        return logits

    return run


def write_safetensors(model: nn.Module, _: WeightCard, path: Path) -> None:
    """Write the bare tensors."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


def read_safetensors(path: Path, card: WeightCard) -> Callable[[Tensor], Tensor]:
    """Return a model rebuilt from the card and filled from the file."""
    from safetensors.torch import load_file

    model = build_model(card.model).eval()
    fill_model(model, load_file(path), path.name)

    def run(images: Tensor) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = model(images)
        return logits

    return run


def _check_installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"the format onnx needs {package}: pip install 'vision-attention-zoo[onnx]'")
