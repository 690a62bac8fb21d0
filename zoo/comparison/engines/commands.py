"""Runs as shell commands that do not depend on each other: for SLURM job arrays and other queues."""

import shlex
import sys

from zoo.comparison.engines.local import ONE_RUN, THREAD_VARIABLES
from zoo.comparison.runs import RunPlan


def shell_command(plan: RunPlan, *, threads: int | None = None) -> str:
    """Return the command that carries out one run, for a shell in the folder that the study was planned in.

    It names this Python, which has the packages, may be given again after an interruption, and leaves alone what is
    finished.

    Args:
        plan: Its config file must be written.
        threads: Of the run; those of the shell's environment by default.

    Raises:
        ValueError: ``threads`` is below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads ({threads}) must be at least 1")
    variables = [f"{name}={threads}" for name in THREAD_VARIABLES] if threads is not None else []
    return shlex.join([*variables, sys.executable, "-m", ONE_RUN, str(plan.config_file)])
