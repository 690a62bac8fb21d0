"""A tiny data set whose label is its colour, and runs that take a second because they need no process of their own."""

import time

import numpy as np
import pytest
from PIL import Image

from zoo.comparison.engines.local import Outcome
from zoo.comparison.one_run import current_digests
from zoo.comparison.runs import stamp
from zoo.training.program import main as train

COLOURS = {"red": (200, 60, 60), "green": (60, 200, 60)}


@pytest.fixture
def colour_folder(tmp_path):
    """Class folders of plain noisy colours: nothing in them has a place."""
    generator = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        folder = tmp_path / "colours" / name
        folder.mkdir(parents=True)
        for number in range(60):
            pixels = np.clip(generator.normal(colour, 12, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "colours"


def run_in_process(plans, jobs=1, *, threads=None, monitor=None):
    """Do what :func:`zoo.comparison.engines.local.run_all` does, in this process."""
    outcomes = []
    for plan in plans:
        started = time.monotonic()
        plan.write_config()
        plan.log.write_text("")
        if not plan.run.is_finished:
            stamp(plan, current_digests(plan.config))
            monitor.waited([plan])
            status = train(["--config", str(plan.config_file)])
        else:
            status = 0
        outcomes.append(Outcome(plan, status, time.monotonic() - started))
        monitor.ended(outcomes[-1])
    return outcomes


@pytest.fixture
def quick_runs(monkeypatch):
    """Let the recommendation's runs happen in this process; return the plans of those that were asked for."""
    from zoo.comparison.recommendation import probing, trials

    asked = []

    def run(plans, *args, **options):
        asked.extend(plans)
        return run_in_process(plans, *args, **options)

    monkeypatch.setattr(trials, "run_all", run)
    monkeypatch.setattr(probing, "run_all", run)
    return asked
