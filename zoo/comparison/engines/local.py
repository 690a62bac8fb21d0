"""Runs side by side on this machine, each a process of its own, the threads shared out among them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from zoo.comparison.runs import RunPlan

ONE_RUN = "zoo.comparison.one_run"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 0.2
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        plan: The run.
        status: Exit status of its process, negative for a signal.
        seconds: It took, starting up included.
        error: Why it could not be carried out at all.
    """

    plan: RunPlan
    status: int
    seconds: float
    error: str = ""

    @property
    def failed(self) -> bool:
        """Whether no result stands."""
        return self.status != 0 or not self.plan.run.is_finished

    @property
    def message(self) -> str:
        """What kept it from running, how it was killed, or the last thing it said."""
        if self.error:
            return self.error
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return last_line(self.plan.log)


class Monitor(Protocol):
    """Who is told what happens."""

    def started(self, plan: RunPlan) -> None:
        """Hear of a run that begins or goes on."""

    def waited(self, running: Sequence[RunPlan]) -> None:
        """Hear, several times a second, that these run."""

    def ended(self, outcome: Outcome) -> None:
        """Hear how a run ended."""


def run_all(
    plans: Sequence[RunPlan], jobs: int = 1, *, threads: int | None = None, monitor: Monitor | None = None
) -> list[Outcome]:
    """Carry out all runs, whatever becomes of one of them; those that are finished already take a moment.

    When this process is interrupted the runs save their state and end, and the interruption goes on; when it is
    killed, the same happens on Linux.

    Args:
        plans: In the order in which they begin.
        jobs: How many run at a time, at least 1.
        threads: Of each run; by default the usable cores shared out, at most ``OMP_NUM_THREADS``.
        monitor: Told what happens.

    Returns:
        How each ended, in the order of ``plans``.

    Raises:
        ValueError: ``jobs`` or ``threads`` is below 1, or two runs share a folder.
        KeyboardInterrupt: The runs have ended.
    """
    if jobs < 1:
        raise ValueError(f"jobs ({jobs}) must be at least 1")
    check_folders(plans)
    environment = run_environment(shared_threads(jobs) if threads is None else threads)
    waiting = list(plans)
    running: list[RunProcess] = []
    outcomes: dict[Path, Outcome] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                plan = waiting.pop(0)
                running.append(RunProcess(plan, environment))
                if monitor is not None:
                    monitor.started(plan)
            time.sleep(_POLL_SECONDS)
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                outcome = process.outcome()
                outcomes[outcome.plan.folder] = outcome
                if monitor is not None:
                    monitor.ended(outcome)
            if monitor is not None:
                monitor.waited([process.plan for process in running])
    finally:
        stop(running)
    return [outcomes[plan.folder] for plan in plans]


class RunProcess:
    """A run's process; what it prints is added to the run's log.

    It has a session of its own, so that Ctrl-C in the terminal reaches it through us, once.

    Args:
        plan: Its config file is written.
        environment: Of the process.
    """

    def __init__(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.plan = plan
        self._started = time.monotonic()
        plan.write_config()
        with plan.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", ONE_RUN, str(plan.config_file), "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return the exit status, or ``None`` while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to a process that still runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout: float | None) -> bool:
        """Wait for so many seconds and return whether it has ended."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def outcome(self) -> Outcome:
        """Say how it ended."""
        assert self._process.returncode is not None
        return Outcome(self.plan, self._process.returncode, time.monotonic() - self._started)


def stop(processes: Sequence[RunProcess]) -> None:
    """Ask runs to save their state and end, and end those by force that take more than a minute over it."""
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    for process in processes:
        if not process.wait(max(0.0, deadline - time.monotonic())):
            process.send(signal.SIGKILL)
            process.wait(None)


def check_folders(plans: Sequence[RunPlan]) -> None:
    """Raise a ValueError when two runs share a folder."""
    folders = [plan.folder.absolute() for plan in plans]
    for folder in folders:
        if folders.count(folder) > 1:
            raise ValueError(f"two runs share the folder {folder}")


def shared_threads(jobs: int) -> int:
    """Return the threads of one of ``jobs`` runs: the usable cores shared out, at least 1, at most OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores // jobs, int(limit) if limit.isdigit() else cores))


def run_environment(threads: int) -> dict[str, str]:
    """Return this process's environment with so many threads for each library that computes.

    Raises:
        ValueError: ``threads`` is below 1.
    """
    if threads < 1:
        raise ValueError(f"threads ({threads}) must be at least 1")
    package = str(Path(__file__).resolve().parents[3])  # the zoo that plans is the zoo that trains
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    shared = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **shared, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def last_line(path: Path) -> str:
    """Return the last line of a log that says something, or an empty string."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
