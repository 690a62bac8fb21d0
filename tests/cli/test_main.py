import os
import subprocess
import sys

import pytest

import zoo
from zoo.cli import main
from zoo.cli.main import COMMANDS, create_parser


def fail(capsys, *words: str) -> str:
    """Run a command line that is refused; return its one line on standard error."""
    try:
        status = main(list(words))
    except SystemExit as stop:
        status = stop.code
    output, error = capsys.readouterr()
    assert status == 2
    assert output == ""
    assert error.count("\n") == 1, error
    return error


def test_version(capsys) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"zoo {zoo.__version__}\n"


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_help_of_every_command(capsys, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    assert f"usage: {' '.join(['zoo', *words])}" in capsys.readouterr().out


def test_every_command_says_what_it_does() -> None:
    assert list(create_parser()[1]) == list(COMMANDS)
    assert all(command.SUMMARY.endswith(".") for command in COMMANDS.values())


def test_a_misspelt_command_is_named_with_the_nearest(capsys) -> None:
    known = ", ".join(COMMANDS)
    assert fail(capsys, "lsit") == f"zoo: error: unknown command 'lsit'. Did you mean 'list'? Known: {known}\n"


def test_a_misspelt_option_is_named_with_the_nearest(capsys) -> None:
    error = fail(capsys, "describe", "resnet20", "--atention", "cbam")
    assert error == "zoo describe: error: unknown argument '--atention'. Did you mean '--attention'?\n"
    assert "Did you mean '--num-classes'?" in fail(capsys, "describe", "resnet20", "--num_classes=5")


def test_an_abbreviated_option_is_refused(capsys) -> None:
    assert "unknown argument '--att'" in fail(capsys, "describe", "resnet20", "--att", "se")


def test_nothing_and_too_little_are_refused(capsys) -> None:
    assert "required: COMMAND" in fail(capsys)
    assert "required: model" in fail(capsys, "describe")


def test_a_callers_mistake_is_one_line_unless_the_traceback_is_asked_for(capsys, monkeypatch) -> None:
    error = fail(capsys, "describe", "resnet2O")
    assert error.startswith("zoo: error: unknown model 'resnet2O'. Did you mean ")
    monkeypatch.setenv("ZOO_TRACEBACK", "1")
    with pytest.raises(ValueError, match="unknown model"):
        main(["describe", "resnet2O"])


def test_the_command_line_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys; from zoo.cli import main; main(['describe', 'resnet20', '--json']);"
        "print(sorted({'lightning', 'torchvision', 'torchmetrics', 'sklearn', 'matplotlib', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("}\n[]\n"), done.stderr


def test_a_reader_that_stops_early_is_no_error(monkeypatch) -> None:
    # Buffered output fails only when it is flushed, after the command has run.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from zoo.cli import main; sys.exit(main(['describe', 'resnet20', '--json']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
