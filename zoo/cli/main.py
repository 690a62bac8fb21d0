"""Read the command line of ``zoo``, run one sub-command, and turn a caller's mistake into one line."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from zoo import __version__
from zoo.cli import (
    caption_command,
    compare_command,
    convert_command,
    describe_command,
    explain_command,
    export_command,
    list_command,
    predict_command,
    recommend_command,
    verify_command,
)
from zoo.registry import suggest

# Each has SUMMARY, add_arguments(parser) and run(arguments) -> exit status; what is slow to import, run imports itself.
COMMANDS: dict[str, Any] = {
    "list": list_command,
    "describe": describe_command,
    "predict": predict_command,
    "caption": caption_command,
    "compare": compare_command,
    "recommend": recommend_command,
    "explain": explain_command,
    "convert": convert_command,
    "export": export_command,
    "verify": verify_command,
}
USAGE_ERROR = 2


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest option where one is misspelt."""

    def error(self, message: str) -> NoReturn:
        """Print the message to standard error and leave with status 2."""
        sys.stderr.write(f"{self.prog}: error: {message}\n")
        raise SystemExit(USAGE_ERROR)


def create_parser() -> tuple[Parser, dict[str, Parser]]:
    """Return the parser of ``zoo`` and, by name, those of its sub-commands."""
    parser = Parser(
        prog="zoo",
        description="A vision attention model zoo.",
        epilog="ZOO_TRACEBACK=1 in the environment shows where an error comes from.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zoo {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    by_name: dict[str, Parser] = {}
    for name, command in COMMANDS.items():
        by_name[name] = subparsers.add_parser(
            name, help=command.SUMMARY, description=command.SUMMARY, allow_abbrev=False
        )
        command.add_arguments(by_name[name])
    return parser, by_name


def split_run_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take out the options of a training run, which have a dot in their names, with their values.

    >>> split_run_options(["compare", "--trainer.max_epochs", "5", "--jobs", "2", "--data.clutter=8"])
    (['compare', '--jobs', '2'], ['--trainer.max_epochs', '5', '--data.clutter=8'])
    """
    others: list[str] = []
    options: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name, equals, _ = word.partition("=")
        if not (name.startswith("--") and "." in name):
            others.append(word)
            continue
        options.append(word)
        if not equals and remaining:
            options.append(remaining.pop(0))
    return others, options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit status: 0, 1 for a result that is not all right, 2 for a caller's mistake."""
    parser, by_name = create_parser()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        known = list(COMMANDS)
        parser.error(f"unknown command {words[0]!r}.{suggest(words[0], known)} Known: {', '.join(known)}")
    words, run_options = split_run_options(words)
    parsed, unknown = parser.parse_known_args(words)
    parsed.words, parsed.run_options = [*words, *run_options], run_options
    if run_options and not getattr(COMMANDS[parsed.command], "TAKES_RUN_OPTIONS", False):
        unknown = unknown or run_options
    if unknown:
        options = [option for option in by_name[parsed.command]._option_string_actions if option.startswith("--")]
        near = suggest(unknown[0].partition("=")[0], options)
        by_name[parsed.command].error(f"unknown argument {unknown[0]!r}.{near}")
    try:
        status: int = COMMANDS[parsed.command].run(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        if os.environ.get("ZOO_TRACEBACK"):
            raise
        sys.stderr.write(f"zoo: error: {error}\n")
        return USAGE_ERROR
