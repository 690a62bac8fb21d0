"""Runs the tests of the kernels under Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "interpreted_flash_attention.py"


@pytest.mark.parametrize("part", ["combinations", "rest"])
def test_the_kernels_agree_with_the_formula_in_the_interpreter(part: str) -> None:
    """Two parts, so that two processes share the work; numpy's warnings are of the NaN that the tests feed it."""
    chosen = "combinations or loses or lengths" if part == "combinations" else "not (combinations or loses or lengths)"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "-k", chosen]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", str(SUITE), *options],
        env=environment,
        cwd=SUITE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert " passed" in finished.stdout
