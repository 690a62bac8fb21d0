"""The typed, frozen description of one training run, read from YAML and the command line."""

import dataclasses
import difflib
import inspect
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from jsonargparse import ArgumentParser, Namespace, set_loader
from lightning.pytorch import Trainer

from zoo.data import DATASETS
from zoo.factory import ATTENTION, MODELS, create_attention
from zoo.registry import suggest
from zoo.serialization import format_yaml, parse_yaml, read_yaml

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
MODEL_ARGUMENTS_FROM_DATA: set[str | int] = {"num_classes", "in_channels"}
NAMED_MODEL_ARGUMENTS: set[str | int] = {"attention", "attention_args", "pretrained"}
# What the run, or a weight card, hands to a data module.
OWNED_DATA_ARGUMENTS: set[str | int] = {"shuffle_seed", "class_names"}

set_loader("strict_yaml", parse_yaml, exceptions=(ValueError,))


@dataclass(frozen=True)
class OptimizationConfig:
    """How the weights are trained.

    The learning rate rises linearly over ``warmup_epochs`` and then follows half a cosine down to
    ``final_lr_fraction * peak_lr``, both counted in optimizer steps.

    Args:
        optimizer: ``sgd`` (momentum) or ``adamw``.
        peak_lr: Learning rate at the end of the warm-up; by default 0.1 for sgd and 0.001 for adamw.
        momentum: Of sgd; by default 0.9.
        nesterov: Of sgd; by default true.
        betas: Of adamw; by default [0.9, 0.999].
        weight_decay: Never applied to norms and biases; by default 0.0005 for sgd and 0.05 for adamw.
        warmup_epochs: Length of the warm-up, fractions allowed; by default 1, or a fifth of a run under 5 epochs.
        final_lr_fraction: Learning rate of the last step as a fraction of the peak, 0 to 1.
        label_smoothing: Share of the target spread evenly over all classes, 0 to below 1.
        mixup_alpha: Parameter of the Beta distribution of mixup; 0 switches it off.
        cutmix_alpha: Parameter of the Beta distribution of cutmix; 0 switches it off. With both, each batch draws one.
        ema_decay: Decay of an exponential moving average of the weights, which is then what is validated, tested and
            saved; after t updates it is min(ema_decay, (1 + t) / (10 + t)). None: the raw weights.
        class_weights: One weight per class in class order, or ``balanced`` for inverse training frequencies.
    """

    optimizer: Literal["sgd", "adamw"] = "sgd"
    peak_lr: float | None = None
    momentum: float | None = None
    nesterov: bool | None = None
    betas: list[float] | None = None
    weight_decay: float | None = None
    warmup_epochs: float | None = None
    final_lr_fraction: float = 0.0
    label_smoothing: float = 0.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    ema_decay: float | None = None
    class_weights: Literal["balanced"] | list[float] | None = None

    def __post_init__(self) -> None:
        """Fill what depends on the optimizer and refuse what contradicts it."""
        if self.optimizer == "sgd":
            defaults: dict[str, Any] = {"peak_lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
            foreign = ["betas"]
        else:
            defaults = {"peak_lr": 1e-3, "betas": [0.9, 0.999], "weight_decay": 0.05}
            foreign = ["momentum", "nesterov"]
        for name in foreign:
            if getattr(self, name) is not None:
                raise ValueError(f"optimization.{name} has no effect on optimizer {self.optimizer!r}; leave it out")
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        assert self.peak_lr is not None
        assert self.weight_decay is not None
        _check("peak_lr", self.peak_lr, self.peak_lr > 0, "above 0")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        if self.warmup_epochs is not None:
            _check("warmup_epochs", self.warmup_epochs, self.warmup_epochs >= 0, "0 or more")
        _check("final_lr_fraction", self.final_lr_fraction, 0 <= self.final_lr_fraction <= 1, "from 0 to 1")
        _check("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "from 0 to below 1")
        _check("mixup_alpha", self.mixup_alpha, self.mixup_alpha >= 0, "0 or more")
        _check("cutmix_alpha", self.cutmix_alpha, self.cutmix_alpha >= 0, "0 or more")
        if self.momentum is not None:
            _check("momentum", self.momentum, 0 <= self.momentum < 1, "from 0 to below 1")
            if self.nesterov and self.momentum == 0:
                raise ValueError("optimization.nesterov needs a momentum above 0; set nesterov to false")
        if self.betas is not None:
            inside = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
            _check("betas", self.betas, inside, "two numbers from 0 to below 1")
        if self.ema_decay is not None:
            _check("ema_decay", self.ema_decay, 0 < self.ema_decay < 1, "between 0 and 1, or null for none")
        if isinstance(self.class_weights, list):
            usable = all(weight >= 0 for weight in self.class_weights) and sum(self.class_weights) > 0
            _check("class_weights", self.class_weights, usable, "weights of 0 or more, not all 0")


def _check(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"optimization.{name} is {value}; it must be {expected}")


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
            values[section] = _plain(values[section])
        return values

    def to_yaml(self) -> str:
        """Return the text of a config file that reads back as this config."""
        return format_yaml(self.to_dict())


def _plain(value: Any) -> Any:
    """Turn what a parser produced (namespaces, tuples, paths) into what YAML holds."""
    if isinstance(value, Namespace):
        return _plain(value.as_dict())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


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
    parser.add_function_arguments(
        MODELS[model_name], "model", skip=MODEL_ARGUMENTS_FROM_DATA | NAMED_MODEL_ARGUMENTS, fail_untyped=False
    )
    parser.add_argument("--model.name", type=str, default=DEFAULT_MODEL, help=f"One of {', '.join(MODELS)}.")
    parser.add_argument(
        "--model.attention",
        type=str | None,
        default=None,
        help=f"One of {', '.join(ATTENTION)}; none for no gate anywhere; null for the model as published.",
    )
    parser.add_argument(
        "--model.attention_args", type=dict[str, Any] | None, default=None, help="Arguments of the attention."
    )
    parser.add_argument(
        "--model.pretrained", type=str | None, default=None, help="A weights name, file or run folder to start from."
    )
    parser.add_class_arguments(DATASETS[data_name], "data", skip=OWNED_DATA_ARGUMENTS, instantiate=False)
    parser.add_argument("--data.name", type=str, default=DEFAULT_DATA, help=f"One of {', '.join(DATASETS)}.")
    parser.add_class_arguments(OptimizationConfig, "optimization", instantiate=False)
    parser.add_class_arguments(Trainer, "trainer", skip=OWNED_TRAINER_ARGUMENTS, instantiate=False, fail_untyped=False)
    parser.set_defaults({"trainer.max_epochs": DEFAULT_MAX_EPOCHS, "trainer.num_sanity_val_steps": 0})
    parser.set_defaults({"trainer.enable_model_summary": False})
    return parser


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
    model["attention_args"] = dict(model["attention_args"] or {})
    if model["attention"] not in (None, "none"):
        create_attention(model["attention"], 64, **model["attention_args"])
    elif model["attention_args"]:
        raise ValueError(f"model.attention_args {model['attention_args']} have no effect without model.attention")
    trainer["precision"] = trainer["precision"] or native_precision(trainer["accelerator"])
    values["optimization"] = OptimizationConfig(**values["optimization"])
    return RunConfig(**{key: _plain(value) if key != "optimization" else value for key, value in values.items()})


def native_precision(accelerator: str) -> str:
    """Return ``bf16-mixed`` where the hardware multiplies bfloat16 matrices itself, else ``32-true``."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if accelerator in ("auto", "cpu") and not (accelerator == "auto" and torch.backends.mps.is_available()):
        native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
        return "bf16-mixed" if native else "32-true"
    return "32-true"


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
