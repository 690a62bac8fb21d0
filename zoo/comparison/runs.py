"""One run of a study: its place, and what stands there already."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from zoo.config import RunConfig
from zoo.serialization import format_yaml, read_yaml, write_atomically
from zoo.training.report import without_root
from zoo.training.run import RunFolder

Status = Literal["new", "unfinished", "finished", "different"]

_PLACES = {"output_dir": "runs", "run_dir": None, "overwrite": False, "weights_dir": None}


@dataclass(frozen=True)
class Cell:
    """A place of a study's grid, without the seed.

    Args:
        model: Title of the model.
        attention: Title of the attention.
        data: Title of the data set.
        shows_data: Whether the study has several data sets, so that the cell's title must tell which.
    """

    model: str
    attention: str
    data: str
    shows_data: bool = False

    @property
    def title(self) -> str:
        """``resnet20+se``, with `` @ cluttered_digits(clutter=8)`` behind it where needed."""
        return f"{self.model}+{self.attention}" + (f" @ {self.data}" if self.shows_data else "")

    @property
    def folder(self) -> Path:
        """Where the runs of the cell lie below the study's folder.

        >>> Cell("resnet20", "cbam(identity_start=True)", "cifar10").folder.as_posix()
        'cifar10/resnet20_cbam-identity_start-True'
        """
        return Path(file_name(self.data)) / f"{file_name(self.model)}_{file_name(self.attention)}"


def file_name(title: str) -> str:
    """Write a title as part of a file's name.

    >>> file_name("cbam(identity_start=True)")
    'cbam-identity_start-True'
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "-", title).strip("-")


@dataclass(frozen=True)
class RunPlan:
    """A run that shall stand in a folder.

    Args:
        config: Its ``run_dir`` is the folder.
        folder: Of the run; beside it lie its config, log, lock and stamp as ``<folder>.yaml`` and so on.
        cell: Its place in a study.
    """

    config: RunConfig
    folder: Path
    cell: Cell | None = None

    @property
    def label(self) -> str:
        """How the run is called in what a person reads."""
        return f"{self.cell.title}, seed {self.config.seed}" if self.cell else str(self.folder)

    @property
    def run(self) -> RunFolder:
        """The files of the run."""
        return RunFolder(self.folder)

    @property
    def config_file(self) -> Path:
        """The config that the run is started with."""
        return self.beside("yaml")

    @property
    def log(self) -> Path:
        """What the run prints."""
        return self.beside("log")

    def beside(self, suffix: str) -> Path:
        """Return the file beside the folder that has the folder's name and a suffix."""
        return self.folder.with_name(f"{self.folder.name}.{suffix}")

    def placeless_command(self, command: str | None) -> str | None:
        """Return the command of the run with its config file named from the study's folder on."""
        if command is None or self.cell is None:
            return command
        name = (self.cell.folder / f"seed{self.config.seed}.yaml").as_posix()
        return re.sub(rf"[^\s']*{re.escape(name)}", name, command)

    def write_config(self) -> None:
        """Write the config file, with the folder in it."""
        values = {**self.config.to_dict(), "run_dir": str(self.folder), "overwrite": False}
        write_atomically(self.config_file, format_yaml(values))


@dataclass(frozen=True)
class Digests:
    """What besides its config decides a run's result."""

    code: str
    data: str

    def to_dict(self) -> dict[str, str]:
        """Return them under the names of ``result.json``."""
        return {"code_digest": self.code, "data_digest": self.data}


@dataclass(frozen=True)
class Standing:
    """What stands in the folder of a planned run.

    Args:
        status: ``unfinished`` and ``finished`` are said of the planned run alone; what was made from another config,
            code or data is ``different``.
        reason: In what it differs.
    """

    status: Status
    reason: str = ""


def assess(plan: RunPlan, digests: Digests) -> Standing:
    """Say what stands in the folder of a run: config, code and data must all be the planned ones to count."""
    run = plan.run
    if not run.path.exists() or (run.path.is_dir() and not any(run.path.iterdir())):
        return Standing("new")
    if not run.config.is_file():
        return Standing("different", "it holds no run")
    difference = config_difference(_read_config(run.config), plan.config.to_dict())
    if difference:
        return Standing("different", difference)
    source = run.result if run.is_finished else plan.beside("json")
    made_from = _read_json(source)
    if made_from is None:
        return Standing("different", "it does not say which code and data it was begun with")
    for kind, digest in (("code", digests.code), ("data", digests.data)):
        if made_from.get(f"{kind}_digest") != digest:
            return Standing("different", f"the {kind} changed")
    return Standing("finished" if run.is_finished else "unfinished")


def stamp(plan: RunPlan, digests: Digests) -> None:
    """Note what a run is begun with; it stands beside the folder, which the trainer demands to be empty."""
    write_atomically(plan.beside("json"), json.dumps(digests.to_dict(), indent=2) + "\n")


def move_aside(plan: RunPlan) -> Path:
    """Rename a folder that holds another run, so that nothing of it is lost, and return its new name."""
    number = 1
    while (aside := plan.folder.with_name(f"{plan.folder.name}.aside{number}")).exists():
        number += 1
    plan.folder.rename(aside)
    return aside


def _read_config(path: Path) -> Any:
    try:
        return read_yaml(path)
    except ValueError:
        return None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def placeless(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config without the folders it names, which have no part in its result."""
    return {**config, **_PLACES, "data": without_root(config["data"])}


def config_difference(present: Any, planned: Mapping[str, Any]) -> str:
    """Name the options in which two configs differ, apart from places."""
    if not isinstance(present, dict) or not isinstance(present.get("data"), dict):
        return "its config is damaged"
    first, second = _flat(placeless(present)), _flat(placeless(planned))
    absent = object()
    names = [name for name in {**first, **second} if first.get(name, absent) != second.get(name, absent)]
    return f"its {', '.join(names[:3])} differ{'s' if len(names) == 1 else ''}" if names else ""


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
