"""A run read from YAML and the command line: the options are the signatures of what they configure."""

import dataclasses
import difflib
import inspect
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace, set_loader
from lightning.pytorch import Trainer

from zoo.config.optimization import OptimizationConfig
from zoo.config.run import RunConfig, native_precision, plain
from zoo.data import data_registry
from zoo.factory import check_attention, list_attention_for
from zoo.registry import CAPTION_DATASETS, CAPTIONERS, DATASETS, MODELS, suggest
from zoo.serialization import parse_yaml, read_yaml

DEFAULT_MODEL = "resnet20"
DEFAULT_DATA = "cluttered_digits"
DEFAULT_MAX_EPOCHS = 15

# What train.py itself hands to the trainer; a second value from the command line would have no effect.
OWNED_TRAINER_ARGUMENTS: set[str | int] = {
    "default_root_dir",
    "use_distributed_sampler",
    "enable_checkpointing",
    "fast_dev_run",
}
# What the data decide about a model, and what is spelled out by name in the model section.
MODEL_ARGUMENTS_FROM_DATA: set[str | int] = {"num_classes", "in_channels", "max_words"}
NAMED_MODEL_ARGUMENTS: set[str | int] = {"attention", "attention_args", "pretrained"}
# What the run, or a weight card, hands to a data module.
OWNED_DATA_ARGUMENTS: set[str | int] = {"shuffle_seed", "class_names"}

set_loader("strict_yaml", parse_yaml, exceptions=(ValueError,))


class RunParser(ArgumentParser):
    """A parser whose errors are a line or two: the fact, and the nearest name."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the message with a suggestion to standard error and leave with status 2."""
        del ex
        raise SystemExit(_fail(self, message))

    @property
    def option_names(self) -> list[str]:
        """Every option by its dotted name."""
        return sorted({action.dest for action in self._actions if action.dest not in ("help", "print_config")})


def _fail(parser: RunParser, message: str) -> int:
    message = re.sub(r"<class '(\w+)'>", r"\1", message).replace("typing.", "").strip()
    key = _unknown_key(message)
    if key is not None:
        message += f". {_explain_unknown(key, parser.option_names)}".rstrip(". ")
    sys.stderr.write(f"{parser.prog}: error: {message}\n{parser.prog}: --help lists the options\n")
    return 2


def _unknown_key(message: str) -> str | None:
    """Find the option an error message of jsonargparse calls unknown, by its dotted name."""
    patterns = (
        r"Group '(?P<group>[^']+)' does not accept option '(?P<key>[^']+)'",
        r"Option '(?P<key>[^']+)' is not accepted",
        r"[Uu]nrecognized arguments: --(?P<key>[^\s=]+)",
    )
    for pattern in patterns:
        if match := re.search(pattern, message):
            group = match.groupdict().get("group")
            return f"{group}.{match['key']}" if group else match["key"]
    return None


def _explain_unknown(key: str, options: Sequence[str]) -> str:
    section, _, leaf = key.partition(".")
    if section == "trainer" and leaf in OWNED_TRAINER_ARGUMENTS:
        return "train.py sets it itself"
    if section == "model" and leaf in MODEL_ARGUMENTS_FROM_DATA:
        return "The data decide it"
    return suggest_option(key, options)


def suggest_option(key: str, options: Sequence[str]) -> str:
    """Return ``Did you mean 'x'?`` for the nearest option: the same leaf elsewhere, or a similar spelling.

    >>> suggest_option("optim.learning-rate", ["optimization.peak_lr", "seed"])
    "Did you mean 'optimization.peak_lr'?"
    >>> suggest_option("peak_lr", ["optimization.peak_lr", "seed"])
    "Did you mean 'optimization.peak_lr'?"
    """
    key = key.replace("-", "_")
    synonyms = {"lr": "peak_lr", "learning_rate": "peak_lr", "epochs": "max_epochs", "max_epoch": "max_epochs"}
    leaf = synonyms.get(key.rsplit(".", 1)[-1], key.rsplit(".", 1)[-1])
    leaves = {option.rsplit(".", 1)[-1] for option in options}
    near_leaves = [leaf] if leaf in leaves else difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.6)
    candidates = [option for option in options if option.rsplit(".", 1)[-1] in near_leaves]
    if not candidates:
        return suggest(key, list(options)).strip()
    nearest = max(candidates, key=lambda option: difflib.SequenceMatcher(None, key, option).ratio())
    return f"Did you mean {nearest!r}?"


def create_parser(model_name: str = DEFAULT_MODEL, data_name: str = DEFAULT_DATA) -> RunParser:
    """Build the command line of ``train.py`` for one model and one data set.

    The options of a section are the arguments of what is named there, so ``--data.position_jitter`` exists for
    ``cluttered_digits`` alone and an option that would have no effect is refused.

    Raises:
        ValueError: The model or the data set is not registered.
    """
    parser = RunParser(
        prog="train.py",
        description="Train a backbone with an attention mechanism, and write weights whose card can be checked.",
        parser_mode="strict_yaml",
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="A YAML file with any of the options below.")
    for option in dataclasses.fields(RunConfig)[4:]:
        parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=_help(option.name))
    registered = f"One of {', '.join(MODELS)}; to write captions, {', '.join(CAPTIONERS)}."
    parser.add_argument("--model.name", type=str, default=DEFAULT_MODEL, help=registered)
    add_arguments = _add_captioner_arguments if model_name in CAPTIONERS else _add_model_arguments
    add_arguments(parser, model_name)
    registered = f"One of {', '.join(DATASETS)}; with captions, {', '.join(CAPTION_DATASETS)}."
    parser.add_argument("--data.name", type=str, default=DEFAULT_DATA, help=registered)
    datasets = data_registry(data_name)
    parser.add_class_arguments(datasets[data_name], "data", skip=OWNED_DATA_ARGUMENTS, instantiate=False)
    parser.add_class_arguments(OptimizationConfig, "optimization", instantiate=False)
    parser.add_class_arguments(Trainer, "trainer", skip=OWNED_TRAINER_ARGUMENTS, instantiate=False, fail_untyped=False)
    parser.set_defaults({"trainer.max_epochs": DEFAULT_MAX_EPOCHS, "trainer.num_sanity_val_steps": 0})
    parser.set_defaults({"trainer.enable_model_summary": False})
    return parser


def _add_model_arguments(parser: RunParser, model_name: str) -> None:
    parser.add_function_arguments(
        MODELS[model_name], "model", skip=MODEL_ARGUMENTS_FROM_DATA | NAMED_MODEL_ARGUMENTS, fail_untyped=False
    )
    parser.add_argument(
        "--model.attention",
        type=str | None,
        default=None,
        help=f"One of {', '.join(list_attention_for(model_name))}; none for no gate anywhere; null for the model as "
        "published.",
    )
    parser.add_argument(
        "--model.attention_args", type=dict[str, Any] | None, default=None, help="Arguments of the attention."
    )
    parser.add_argument(
        "--model.pretrained", type=str | None, default=None, help="A weights name, file or run folder to start from."
    )


def _add_captioner_arguments(parser: RunParser, model_name: str) -> None:
    skipped = MODEL_ARGUMENTS_FROM_DATA | {"encoder"}
    parser.add_function_arguments(CAPTIONERS[model_name], "model", skip=skipped, fail_untyped=False)
    parser.add_argument("--model.encoder", type=str, default=DEFAULT_MODEL, help=f"One of {', '.join(MODELS)}.")
    parser.add_argument(
        "--model.encoder_args", type=dict[str, Any] | None, default=None, help="Arguments of the encoder, such as stem."
    )
    parser.add_argument(
        "--model.encoder_pretrained", type=str | None, default=None, help="Weights of a classifier for the encoder."
    )


def _help(option: str) -> str:
    described = re.search(rf"^ +{option}: (.+)$", inspect.getdoc(RunConfig) or "", re.MULTILINE)
    assert described is not None, option
    return described[1]


def parse_run_config(arguments: Sequence[str] | None = None) -> RunConfig:
    """Read a run from command-line arguments, ``--config FILE`` among them.

    Anything misspelt, misplaced or of the wrong type ends the program with status 2 and one line that names it.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = create_parser()
    try:
        for path in _config_files(arguments):
            _check_sections(path)
        names = _named(arguments)
        parser = create_parser(names["model"], names["data"])
        return to_run_config(parser.parse_args(arguments))
    except (ValueError, OSError) as error:
        parser.error(str(error))


def to_run_config(parsed: Namespace) -> RunConfig:
    """Resolve what was left open and check everything that can be checked before the data are read.

    Raises:
        ValueError: A value contradicts another one, or an attention refuses its arguments.
    """
    values = {key: value for key, value in parsed.as_dict().items() if key not in ("config", "print_config")}
    model, trainer = values["model"], values["trainer"]
    if not 0 <= values["seed"] < 2**32:
        raise ValueError(f"seed ({values['seed']}) must be from 0 to {2**32 - 1}")
    if trainer["max_epochs"] == 0 or trainer["max_steps"] == 0:
        raise ValueError("trainer.max_epochs and trainer.max_steps must be at least 1, or -1 for no such limit")
    writes, has_captions = model["name"] in CAPTIONERS, values["data"]["name"] in CAPTION_DATASETS
    if writes != has_captions:
        raise ValueError(
            f"model.name {model['name']!r} {'writes captions' if writes else 'tells classes'}, but data.name "
            f"{values['data']['name']!r} has {'captions' if has_captions else 'classes'}"
        )
    if writes:
        model["encoder_args"] = dict(model["encoder_args"] or {})
    else:
        _check_attention_arguments(model)
    trainer["precision"] = trainer["precision"] or native_precision(trainer["accelerator"])
    values["optimization"] = OptimizationConfig(**values["optimization"])
    return RunConfig(**{key: plain(value) if key != "optimization" else value for key, value in values.items()})


def _check_attention_arguments(model: dict[str, Any]) -> None:
    model["attention_args"] = dict(model["attention_args"] or {})
    if model["attention"] not in (None, "none"):
        check_attention(model["name"], model["attention"], model["attention_args"])
    elif model["attention_args"]:
        raise ValueError(f"model.attention_args {model['attention_args']} have no effect without model.attention")


def _config_files(arguments: Sequence[str]) -> list[str]:
    files = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("--config=")]
    pairs = itertools.pairwise(arguments)
    return files + [value for option, value in pairs if option == "--config"]


def _check_sections(path: str) -> None:
    """Refuse a file that is empty or holds an empty section: both mean that something was lost."""
    if not Path(path).is_file():
        raise ValueError(f"config file {path} does not exist")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold sections such as 'model:' and 'data:', but it holds {content!r}")
    for section in ("model", "data", "optimization", "trainer"):
        if section in content and not isinstance(content[section], dict):
            raise ValueError(f"{path}: section '{section}' holds {content[section]!r}; fill it or remove it")


def _named(arguments: Sequence[str]) -> dict[str, str]:
    """Find which model and data set are meant, before the options of either are known."""
    names = {"model": DEFAULT_MODEL, "data": DEFAULT_DATA}
    for path in _config_files(arguments):
        content = read_yaml(path)
        for section in names:
            names[section] = content.get(section, {}).get("name", names[section])
    for position, argument in enumerate(arguments):
        for section in names:
            if argument == f"--{section}.name" and position + 1 < len(arguments):
                names[section] = arguments[position + 1]
            elif argument.startswith(f"--{section}.name="):
                names[section] = argument.split("=", 1)[1]
    return names


def instantiate_trainer_arguments(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Build the callbacks, loggers, plugins and strategies that the trainer section names by class path."""
    parser = ArgumentParser(parser_mode="strict_yaml")
    parser.add_class_arguments(Trainer, "trainer", skip=OWNED_TRAINER_ARGUMENTS, instantiate=False, fail_untyped=False)
    instantiated = parser.instantiate(parser.parse_object({"trainer": dict(trainer)}))
    return dict(instantiated.trainer.as_dict())
