"""``python -m zoo.comparison.one_run CONFIG.yaml``: begin, resume or leave alone the run that a config describes.

The config names the run's folder. A finished run is left alone, an unfinished one goes on, and what was made from
another config, code or data is moved aside. Two of these never train in one folder: whoever comes second waits until
the first has ended. So the command may be given again at any time, by a person or a cluster's queue.
"""

import argparse
import ctypes
import fcntl
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from zoo.comparison.runs import Digests, RunPlan, assess, move_aside, stamp
from zoo.config import RunConfig, parse_run_config
from zoo.data import create_data
from zoo.provenance import code_digest

MODULE = "zoo.comparison.one_run"
_PR_SET_PDEATHSIG = 1  # the number of prctl.h


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status, the trainer's own when it trains."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__, allow_abbrev=False)
    parser.add_argument("config", help="a run's config file that names its run_dir")
    parser.add_argument("--parent", type=int, help="process id whose end ends this run, its state saved (Linux)")
    options = parser.parse_args(arguments)
    if options.parent is not None and not end_with_parent(options.parent):
        return 130
    try:
        config = parse_run_config(["--config", options.config])
        if config.run_dir is None:
            raise ValueError(f"{options.config} must name the run's folder as run_dir")
        return carry_out(RunPlan(config, Path(config.run_dir)), Path(options.config))
    except (ValueError, OSError) as error:
        print(f"{MODULE}: error: {error}", file=sys.stderr)
        return 2


def carry_out(plan: RunPlan, config_file: Path) -> int:
    """Do what is left of a run, alone in its folder.

    Returns:
        0 when the run stands finished, else the trainer's status.
    """
    lock = take_lock(plan)
    try:
        digests = current_digests(plan.config)
        standing = assess(plan, digests)
        print(f"{plan.folder}: {standing.status}" + (f" ({standing.reason})" if standing.reason else ""), flush=True)
        if standing.status == "finished":
            return 0
        if standing.status == "different":
            print(f"What stood there is kept as {move_aside(plan)}", flush=True)
        if standing.status == "unfinished":
            return train(["--resume", str(plan.folder)])
        stamp(plan, digests)
        return train(["--config", str(config_file)])
    finally:
        lock.close()


def current_digests(config: RunConfig) -> Digests:
    """Return what the code and the data of a run are now."""
    return Digests(code=code_digest(), data=create_data(**config.data, shuffle_seed=config.seed).digest())


def train(arguments: Sequence[str]) -> int:
    """Run ``python -m zoo.training`` in this process, as if it had been called so."""
    sys.argv = ["zoo.training", *arguments]
    try:
        runpy.run_module("zoo.training", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def take_lock(plan: RunPlan) -> IO[str]:
    """Wait until no other process is at the run, and keep all others out until this one ends, however it ends.

    The lock is the system's and belongs to this process alone: no child inherits it and no crash leaves it behind.
    """
    path = plan.beside("lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        print(f"Waiting for process {file.read().strip()}, which is at {plan.folder}", flush=True)
        fcntl.lockf(file, fcntl.LOCK_EX)
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def end_with_parent(parent: int) -> bool:
    """Ask the system to send SIGTERM when the parent dies, upon which training saves its state and ends.

    Returns:
        Whether the parent is still there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main())
