import io

import pytest
from rich.console import Console

from zoo.comparison.engines.local import Outcome
from zoo.comparison.progress import GridProgress, count_epochs, num_epochs, seconds_left
from zoo.comparison.runs import Cell, RunPlan
from zoo.config import parse_run_config


@pytest.fixture
def make_plan(tmp_path):
    def make(attention, seed=0, epochs=4):
        folder = tmp_path / f"{attention}{seed}"
        folder.mkdir()
        config = parse_run_config(["--trainer.max_epochs", str(epochs), "--seed", str(seed)])
        return RunPlan(config, folder, Cell("net", attention, "toy"))

    return make


def log_epochs(plan, count):
    (plan.folder / "metrics.csv").write_text("epoch\n" + "".join(f"{epoch}\n" for epoch in range(1, count + 1)))


def test_epochs_are_counted_in_the_run_folder(make_plan):
    plan = make_plan("se")
    assert count_epochs(plan) == 0
    log_epochs(plan, 3)
    assert (count_epochs(plan), num_epochs(plan)) == (3, 4)
    (plan.folder / "result.json").write_text("{}")
    assert count_epochs(plan) == 4
    assert num_epochs(make_plan("eca", epochs=-1)) == 1


def test_time_left_follows_the_pace_of_each_kind_and_the_longest_run():
    assert seconds_left([("a", 10), ("b", 10)], {"a": 1.0, "b": 3.0}, jobs=1) == 40
    assert seconds_left([("a", 10), ("unknown", 10)], {"a": 1.0, "b": 3.0}, jobs=1) == 30
    assert seconds_left([("a", 10), ("a", 2)], {"a": 1.0}, jobs=2) == 10
    assert seconds_left([("a", 10)], {}, jobs=1) is None
    assert seconds_left([], {}, jobs=1) == 0


def test_lines_tell_what_happens_where_there_is_no_terminal(make_plan):
    first, second = make_plan("none"), make_plan("se")
    console = Console(file=io.StringIO(), soft_wrap=True)
    with GridProgress([first, second], 1, console) as progress:
        progress.started(first)
        log_epochs(first, 4)
        (first.folder / "result.json").write_text("{}")
        progress.ended(Outcome(first, 0, 12.0))
        progress.started(second)
        progress.waited([second])
        second.log.write_text("error: broken\n")
        progress.ended(Outcome(second, 1, 3.0))
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "started   net+none, seed 0"
    assert lines[1].startswith("finished  net+none, seed 0 in 12 s; ")
    assert lines[1].endswith(" left")
    assert lines[3] == f"FAILED    net+se, seed 0: error: broken ({second.log})"
    assert len(lines) == 4


def test_a_terminal_shows_a_bar_over_the_whole_grid(make_plan):
    first, second = make_plan("none"), make_plan("se")
    log_epochs(first, 2)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with GridProgress([first, second], 1, console) as progress:
        progress.started(first)
        log_epochs(first, 4)
        (first.folder / "result.json").write_text("{}")
        progress.ended(Outcome(first, 0, 12.0))
    text = console.file.getvalue()
    assert "0 of 2 runs" in text
    assert "1 of 2 runs" in text
    assert "4/8" in text
