"""A study: models x attention x data x seeds under one recipe, from a file or the command line."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.comparison.choices import Choice, check_distinct, parse_choices, read_choices
from zoo.comparison.runs import Cell, RunPlan
from zoo.config import RunConfig, create_parser, to_run_config
from zoo.registry import suggest
from zoo.serialization import parse_yaml, read_yaml

BASELINE = "none"
KEYS = ("name", "models", "attention", "data", "seeds", "base", "recipe")
# What the study itself sets, or what belongs to one run alone.
_OWNED = ("seed", "output_dir", "run_dir", "overwrite", "weights_dir", "config")
_SECTIONS = ("model", "data", "optimization", "trainer")


@dataclass(frozen=True)
class Study:
    """A grid of runs that differ in model, attention, data and seed, and in nothing else.

    Within each model and data set, every attention is compared with ``none``. With one seed, runs see the training
    images in the same order with the same augmentation, and every parameter that two nets of the grid have in common
    by name and shape starts from the same value where the model is the same; the gates' own parameters are drawn apart.

    Args:
        name: Names files and folders: letters, digits, ``_``, ``-`` and ``.``.
        models: Each with the keyword arguments of :func:`zoo.create_model`.
        attention: Each with the mechanism's arguments; ``none``, for no gate anywhere, is one of them.
        data: Each with the keyword arguments of :func:`zoo.data.create_data`; all have the same test labels.
        seeds: Of the initial weights, the order of images and the augmentation.
        recipe: What all runs share, in the layout of a run's config file; an option of one data set stands before the
            recipe's.

    Raises:
        ValueError: A value stands twice, ``none`` is missing, or a name or an option is unknown.
    """

    name: str
    models: tuple[Choice, ...]
    attention: tuple[Choice, ...]
    data: tuple[Choice, ...]
    seeds: tuple[int, ...]
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.name):
            raise ValueError(f"the study's name {self.name!r} must be of letters, digits, '_', '-' and '.'")
        for axis in ("models", "attention", "data"):
            check_distinct(axis, [choice.title for choice in getattr(self, axis)])
        check_distinct("seeds", [str(seed) for seed in self.seeds])
        if not self.seeds:
            raise ValueError("a study needs at least one seed")
        if Choice(BASELINE) not in self.attention:
            raise ValueError(f"attention lacks {BASELINE!r}, the plain net that every other one is compared with")
        titles = [model.title for model in self.models]
        for attention in self.attention:
            for model in attention.models:
                if model not in titles:
                    known = ", ".join(titles)
                    raise ValueError(f"attention {attention.title}: no model of the study is {model!r}. Known: {known}")
        _check_recipe(self.recipe)

    def cells(self) -> list[Cell]:
        """Return the grid without its seeds, the plain net of each model first."""
        attention = sorted(self.attention, key=lambda choice: choice.name != BASELINE)
        return [
            Cell(model.title, gate.title, data.title, shows_data=len(self.data) > 1)
            for data, model, gate in self._grid(attention)
        ]

    def plans(self, folder: Path | str) -> list[RunPlan]:
        """Return one ordinary run per cell and seed, all cells with the first seed first.

        So whatever part of the study is done is balanced.

        Raises:
            ValueError: An option is unknown, of the wrong type, or contradicts another one.
        """
        attention = sorted(self.attention, key=lambda choice: choice.name != BASELINE)
        cells = self.cells()
        check_distinct("folders of the study", [cell.folder.as_posix() for cell in cells])
        configs = [self._config(*values) for values in self._grid(attention)]
        plans = []
        for seed in self.seeds:
            for cell, config in zip(cells, configs, strict=True):
                run_folder = Path(folder) / cell.folder / f"seed{seed}"
                run_config = dataclasses.replace(config, seed=seed, run_dir=str(run_folder))
                plans.append(RunPlan(run_config, run_folder, cell))
        return plans

    def _grid(self, attention: Sequence[Choice]) -> Iterator[tuple[Choice, Choice, Choice]]:
        for data in self.data:
            for model in self.models:
                for gate in attention:
                    if not gate.models or model.title in gate.models:
                        yield data, model, gate

    def _config(self, data: Choice, model: Choice, gate: Choice) -> RunConfig:
        content = {key: value for key, value in self.recipe.items() if key not in _SECTIONS}
        for section in ("optimization", "trainer"):
            if section in self.recipe:
                content[section] = dict(self.recipe[section])
        content["model"] = {**self.recipe.get("model", {}), "name": model.name, **model.options}
        content["model"] |= {"attention": gate.name, "attention_args": dict(gate.options)}
        content["data"] = {**self.recipe.get("data", {}), "name": data.name, **data.options}
        content["seed"] = self.seeds[0]
        try:
            return _resolve(content)
        except ValueError as error:
            raise ValueError(f"study {self.name!r}, {model.title}+{gate.title} on {data.title}: {error}") from None


def read_study(path: Path | str) -> Study:
    """Read a study file, such as ``configs/studies/cifar10_gates.yaml``.

    ``name`` is the file's by default. ``seeds`` is a list, or a count from 0 on. ``base`` names a run's config file,
    relative to the study's, whose recipe is shared; what ``recipe`` says stands before it.

    Raises:
        ValueError: The file is no study: a key is unknown, missing or holds what it must not.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"study file {path} does not exist")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold {', '.join(KEYS)}, but it holds {content!r}")
    try:
        for key in content:
            if key not in KEYS:
                raise ValueError(f"unknown key {key!r}.{suggest(str(key), list(KEYS))} Known: {', '.join(KEYS)}")
        missing = [key for key in ("models", "attention", "data", "seeds") if key not in content]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
        base = content.get("base")
        recipe = content.get("recipe", {})
        _check_recipe(recipe)
        return Study(
            name=str(content.get("name", path.stem)),
            models=read_choices("models", content["models"]),
            attention=read_choices("attention", content["attention"]),
            data=read_choices("data", content["data"]),
            seeds=_read_seeds(content["seeds"]),
            recipe=merge(_read_base(path.parent / str(base)), recipe) if base is not None else recipe,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def study_from_options(
    *,
    models: str,
    attention: str,
    data: str,
    seeds: str,
    name: str | None = None,
    base: Path | str | None = None,
    options: Sequence[str] = (),
) -> Study:
    """Build a study from words of the command line.

    Args:
        models: Choices with commas between them, see :func:`zoo.comparison.choices.parse_choices`.
        attention: The same.
        data: The same.
        seeds: A count, or several seeds with commas between them.
        name: By default made from data and models.
        base: A run's config file whose recipe is shared.
        options: Options of ``train.py`` such as ``--trainer.max_epochs 5``, shared by all runs.

    Raises:
        ValueError: Something is written otherwise, unknown, or stands twice.
    """
    recipe = parse_run_options(options)
    chosen = {axis: parse_choices(text) for axis, text in (("models", models), ("data", data))}
    numbers = [parse_yaml(part) for part in seeds.split(",")]
    default = "_".join([*dict.fromkeys(choice.name for choice in (*chosen["data"], *chosen["models"]))])
    return Study(
        name=default if name is None else name,
        models=chosen["models"],
        attention=parse_choices(attention),
        data=chosen["data"],
        seeds=_read_seeds(numbers[0] if len(numbers) == 1 else numbers),
        recipe=merge(_read_base(Path(base)), recipe) if base is not None else recipe,
    )


def parse_run_options(words: Sequence[str]) -> dict[str, Any]:
    """Turn ``--section.option value`` or ``--section.option=value`` into the layout of a config file.

    Raises:
        ValueError: A value is missing, or an option stands twice.

    >>> parse_run_options(["--trainer.max_epochs", "5", "--optimization.peak_lr=1e-2"])
    {'trainer': {'max_epochs': 5}, 'optimization': {'peak_lr': 0.01}}
    """
    content: dict[str, Any] = {}
    remaining = list(words)
    while remaining:
        option, equals, value = remaining.pop(0).partition("=")
        if not option.startswith("--"):
            raise ValueError(f"{option!r} stands behind no option")
        if not equals:
            if not remaining:
                raise ValueError(f"{option} needs a value")
            value = remaining.pop(0)
        *sections, leaf = option.removeprefix("--").split(".")
        section = content
        for key in sections:
            section = section.setdefault(key, {})
            if not isinstance(section, dict):
                raise ValueError(f"{option}: {key!r} has a value already and can hold no options")
        if leaf in section:
            raise ValueError(f"{option} is given twice")
        section[leaf] = parse_yaml(value, source=option)
    return content


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the options of ``changes`` in place of its own, section by section.

    >>> merge({"trainer": {"max_epochs": 15, "precision": "bf16-mixed"}}, {"trainer": {"max_epochs": 1}})
    {'trainer': {'max_epochs': 1, 'precision': 'bf16-mixed'}}
    """
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def _read_seeds(value: Any) -> tuple[int, ...]:
    numbers = list(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(numbers, list) or not all(type(seed) is int and 0 <= seed < 2**32 for seed in numbers):
        raise ValueError(f"seeds ({value!r}) must be a count, or a list of integers from 0 to {2**32 - 1}")
    return tuple(numbers)


def _read_base(path: Path) -> dict[str, Any]:
    """Return the recipe of a run's config: all but what the grid and the study's folders replace.

    Raises:
        ValueError: There is no such file, or it says something of the model that would be lost.
    """
    if not path.is_file():
        raise ValueError(f"base config {path} does not exist")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"base config {path} must hold sections such as 'data:', but it holds {content!r}")
    _check_sections(content, f"base config {path}")
    model = {key: value for key, value in content.get("model", {}).items() if key not in ("name", "attention")}
    if model:
        raise ValueError(f"base config {path} gives the model {', '.join(model)}; say that beside the study's models")
    content["data"] = {key: value for key, value in content.get("data", {}).items() if key != "name"}
    return {key: value for key, value in content.items() if key not in ("model", *_OWNED)}


def _check_recipe(recipe: Any) -> None:
    if not isinstance(recipe, Mapping):
        raise ValueError(f"recipe ({recipe!r}) must hold sections such as 'trainer:'")
    for key in recipe:
        if key in _OWNED:
            raise ValueError(f"recipe: {key!r} has no place in a study, which sets it for each run")
    _check_sections(recipe, "recipe")
    for section, axis in (("model", "models"), ("data", "data")):
        if "name" in recipe.get(section, {}):
            raise ValueError(f"recipe: {section}.name has no effect; name it under {axis!r}")
    for option in ("attention", "attention_args"):
        if option in recipe.get("model", {}):
            raise ValueError(f"recipe: model.{option} has no effect; say it under 'attention'")


def _check_sections(content: Mapping[str, Any], source: str) -> None:
    for section in _SECTIONS:
        if section in content and not isinstance(content[section], Mapping):
            raise ValueError(f"{source}: section {section!r} holds {content[section]!r}; fill it or remove it")


def _resolve(content: dict[str, Any]) -> RunConfig:
    """Make a run of a config's content, as ``train.py --config`` does.

    Raises:
        ValueError: In the words of ``train.py``.
    """
    parser = create_parser(content["model"]["name"], content["data"]["name"])
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return to_run_config(parser.parse_object(content))
    except SystemExit:
        raise ValueError(errors.getvalue().splitlines()[0].removeprefix("train.py: error: ")) from None
