"""Where a number comes from: versions, hardware and the commit of the code that made it."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOMS_ABOVE_TRAINING = ("cli", "comparison", "explain")
DISTRIBUTIONS = ("torch", "torchvision", "lightning", "torchmetrics")


def describe_versions() -> dict[str, str | None]:
    """Return the versions of Python, the zoo and what it computes with; ``None`` for what is not installed."""
    # Not `import zoo`: this module lies below the package's public names, which import it.
    versions: dict[str, str | None] = {"python": platform.python_version(), "zoo": sys.modules["zoo"].__version__}
    for distribution in DISTRIBUTIONS:
        try:
            versions[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            versions[distribution] = None
    return versions


def describe_hardware(device: torch.device | str | None = None) -> dict[str, Any]:
    """Return processor model, usable cores and accelerator.

    Args:
        device: Where the work ran; the accelerator is ``None`` for the CPU. By default the first CUDA device, if any.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    return {
        "processor": processor_name(),
        "num_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "system": platform.system(),
    }


def processor_name() -> str:
    """Return the processor's model name where the system tells it, else its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe_commit() -> dict[str, Any] | None:
    """Return ``{"id": ..., "dirty": ...}`` of the checkout the package lies in, or ``None`` outside one.

    ``dirty`` says whether a tracked file differs from the commit.
    """
    root = checkout_folder()
    if root is None or not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"id": commit, "dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no"))}


def code_digest() -> str:
    """Return the sha256 of the sources that decide a run's result: all of the package but the rooms above training.

    Two runs with equal digests were made by the same code, whatever the commits and the folder it lay in.
    """
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix()):
        name = path.relative_to(package).as_posix()
        if name.partition("/")[0] not in ROOMS_ABOVE_TRAINING:
            digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def checkout_folder() -> Path | None:
    """Return the source tree the package is imported from, or ``None`` for an installed copy."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "pyproject.toml").is_file() else None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
