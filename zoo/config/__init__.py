"""The description of one run, and its command line."""

from zoo.config.command_line import (
    DEFAULT_DATA,
    DEFAULT_MAX_EPOCHS,
    DEFAULT_MODEL,
    OWNED_DATA_ARGUMENTS,
    OWNED_TRAINER_ARGUMENTS,
    RunParser,
    create_parser,
    instantiate_trainer_arguments,
    parse_run_config,
    suggest_option,
    to_run_config,
)
from zoo.config.optimization import OptimizationConfig
from zoo.config.run import RunConfig, native_precision

__all__ = [
    "DEFAULT_DATA",
    "DEFAULT_MAX_EPOCHS",
    "DEFAULT_MODEL",
    "OWNED_DATA_ARGUMENTS",
    "OWNED_TRAINER_ARGUMENTS",
    "OptimizationConfig",
    "RunConfig",
    "RunParser",
    "create_parser",
    "instantiate_trainer_arguments",
    "native_precision",
    "parse_run_config",
    "suggest_option",
    "to_run_config",
]
