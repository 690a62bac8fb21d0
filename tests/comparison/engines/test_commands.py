import shlex
import sys

import pytest

from zoo.comparison.engines.commands import shell_command
from zoo.comparison.runs import RunPlan
from zoo.config import parse_run_config


def test_the_command_is_one_line_whatever_the_folder_is_called(tmp_path):
    folder = tmp_path / "a folder; with $signs"
    words = shlex.split(shell_command(RunPlan(parse_run_config([]), folder)))
    assert words == [sys.executable, "-m", "zoo.comparison.one_run", f"{folder}.yaml"]


def test_threads_stand_before_the_command(tmp_path):
    command = shell_command(RunPlan(parse_run_config([]), tmp_path / "x"), threads=3)
    variables = "OMP_NUM_THREADS=3 MKL_NUM_THREADS=3 OPENBLAS_NUM_THREADS=3"
    assert command.startswith(f"{variables} {shlex.quote(sys.executable)} -m ")
    with pytest.raises(ValueError, match=r"threads \(0\) must be at least 1"):
        shell_command(RunPlan(parse_run_config([]), tmp_path / "x"), threads=0)
