"""How far a grid of runs is and how long the rest will take: a bar in a terminal, lines elsewhere."""

import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from zoo.comparison.engines.local import Outcome
from zoo.comparison.runs import RunPlan

_REFRESH_SECONDS = 2.0


class GridProgress:
    """Tells a person what happens; what the engines call a monitor.

    Args:
        plans: All runs of the study, those that are finished among them.
        jobs: How many run at a time.
        console: Where to; standard output by default.
    """

    def __init__(self, plans: Sequence[RunPlan], jobs: int, console: Console | None = None) -> None:
        self._plans = list(plans)
        self._jobs = jobs
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._pace: dict[str, float] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._epochs = {plan.label: count_epochs(plan) for plan in self._plans}
        self._refreshed = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[left]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=sum(map(num_epochs, self._plans)), left="")

    def __enter__(self) -> Self:
        self._show([])
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def started(self, plan: RunPlan) -> None:
        """Say that a run begins or goes on."""
        self._begun[plan.label] = (time.monotonic(), count_epochs(plan))
        self._console.print(f"started   {plan.label}", markup=False)

    def waited(self, running: Sequence[RunPlan]) -> None:
        """Bring bar and time left up to date, every other second."""
        if time.monotonic() - self._refreshed >= _REFRESH_SECONDS:
            for plan in running:
                self._note_pace(plan)
            self._show(running)

    def ended(self, outcome: Outcome) -> None:
        """Say how a run ended, and how long the rest will take."""
        plan = outcome.plan
        self._note_pace(plan)
        if outcome.failed:
            self._console.print(f"FAILED    {plan.label}: {outcome.message} ({plan.log})", markup=False)
            self._epochs[plan.label] = num_epochs(plan)  # nothing of it is left to do
        else:
            line = f"finished  {plan.label} in {format_seconds(outcome.seconds)}"
            self._console.print(f"{line}; {self._left()}", markup=False)
        self._show([])

    def _note_pace(self, plan: RunPlan) -> None:
        begun, before = self._begun[plan.label]
        done = self._epochs[plan.label] = count_epochs(plan)
        if done > before:
            self._pace[_kind(plan)] = (time.monotonic() - begun) / (done - before)

    def _left(self) -> str:
        todo = [
            (_kind(plan), left) for plan in self._plans if (left := num_epochs(plan) - self._epochs[plan.label]) > 0
        ]
        seconds = seconds_left(todo, self._pace, self._jobs)
        return "time left not known yet" if seconds is None else f"{format_seconds(seconds)} left"

    def _show(self, running: Sequence[RunPlan]) -> None:
        self._refreshed = time.monotonic()
        finished = sum(self._epochs[plan.label] >= num_epochs(plan) for plan in self._plans)
        description = f"{finished} of {len(self._plans)} runs, {len(running)} running"
        self._bar.update(self._task, completed=sum(self._epochs.values()), description=description, left=self._left())


def _kind(plan: RunPlan) -> str:
    return plan.cell.title if plan.cell else plan.config.title


def num_epochs(plan: RunPlan) -> int:
    """Return the epochs of a run, 1 for one that is bounded otherwise."""
    return max(1, plan.config.trainer.get("max_epochs") or 1)


def count_epochs(plan: RunPlan) -> int:
    """Return how many epochs of a run are done; all, once it is finished."""
    if plan.run.is_finished:
        return num_epochs(plan)
    try:
        rows = plan.run.epochs.read_text(encoding="utf-8").count("\n") - 1
    except OSError:
        return 0
    return min(max(rows, 0), num_epochs(plan))


def seconds_left(todo: Sequence[tuple[str, int]], pace: Mapping[str, float], jobs: int) -> float | None:
    """Return how long runs will take.

    Args:
        todo: Of each run its kind and the epochs that are left.
        pace: Seconds per epoch of the kinds that have been seen; others take as long as those on average.
        jobs: How many run at a time.

    Returns:
        Seconds, or ``None`` when no pace is known.

    >>> seconds_left([("plain", 10), ("se", 10)], {"plain": 2.0, "se": 4.0}, jobs=2)
    40.0
    """
    if not todo:
        return 0.0
    if not pace:
        return None
    average = sum(pace.values()) / len(pace)
    seconds = [epochs * pace.get(kind, average) for kind, epochs in todo]
    return max(max(seconds), sum(seconds) / jobs)


def format_seconds(seconds: float) -> str:
    """Write a duration in the two largest of hours, minutes and seconds.

    >>> format_seconds(42.3), format_seconds(192), format_seconds(9000)
    ('42 s', '3 min 12 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
