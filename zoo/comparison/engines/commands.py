"""Runs as shell commands that do not depend on each other: for SLURM job arrays and other queues."""

import shlex

from zoo.comparison.engines.local import ONE_RUN
from zoo.comparison.runs import RunPlan


def shell_command(plan: RunPlan) -> str:
    """Return the command that carries out one run, for a shell in the folder that the study was planned in.

    It may be given again after an interruption, and leaves alone what is finished.
    """
    return shlex.join(["python", "-m", ONE_RUN, str(plan.config_file)])
