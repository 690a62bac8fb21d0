import os
import signal
import subprocess
import threading
import time

import pytest

from zoo.comparison.engines import local
from zoo.comparison.engines.local import Outcome, last_line, run_all, run_environment, shared_threads
from zoo.comparison.runs import RunPlan
from zoo.config import parse_run_config

# Stands in for a run: it does at once what the folder's name says, and keeps a diary of who began and ended when.
STAND_IN = """
import os, pathlib, re, signal, sys, time
config = pathlib.Path(sys.argv[1])
folder = pathlib.Path(re.search(r"run_dir: (.+)", config.read_text())[1])
diary = folder.parent / "diary"
def note(what):
    with diary.open("a") as file:
        file.write(f"{what} {folder.name} {os.environ['OMP_NUM_THREADS']}\\n")
def save(*_):
    note("saved")
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
assert sys.argv[2:] == ["--parent", str(os.getppid())]
note("began")
print("working", flush=True)
if folder.name.startswith("fails"):
    sys.exit("error: the loss is nan")
if folder.name.startswith("dies"):
    os.kill(os.getpid(), signal.SIGKILL)
if folder.name.startswith("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("ignores")
    time.sleep(60)
time.sleep(60 if folder.name.startswith("sleeps") else 0.5)
folder.mkdir(exist_ok=True)
(folder / "result.json").write_text("{}")
note("ended")
"""


@pytest.fixture
def make_plans(tmp_path, monkeypatch):
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(local, "ONE_RUN", "stand_in")
    config = parse_run_config([])

    def make(*names):
        folders = [tmp_path / name for name in names]
        return [RunPlan(config, folder) for folder in folders]

    return make


@pytest.fixture
def diary(tmp_path):
    return lambda: [line.rsplit(" ", 1)[0] for line in (tmp_path / "diary").read_text().splitlines()]


def test_one_failure_is_reported_and_the_rest_goes_on(make_plans):
    plans = make_plans("first", "fails", "dies", "last")
    outcomes = run_all(plans, 4)
    assert [outcome.plan for outcome in outcomes] == plans
    assert [outcome.failed for outcome in outcomes] == [False, True, True, False]
    assert outcomes[1].message == "error: the loss is nan"
    assert outcomes[2].message == "killed by SIGKILL"
    assert outcomes[1].plan.log.read_text() == "working\nerror: the loss is nan\n"


def test_a_run_that_ends_well_without_a_result_has_failed(make_plans):
    (plan,) = make_plans("empty")
    assert Outcome(plan, status=0, seconds=1.0).failed


def test_no_more_run_at_a_time_than_asked_for(make_plans, diary):
    run_all(make_plans("a", "b", "c"), 1)
    assert diary() == ["began a", "ended a", "began b", "ended b", "began c", "ended c"]


def test_two_at_a_time_run_side_by_side(make_plans, diary):
    run_all(make_plans("a", "b"), 2)
    assert sorted(diary()[:2]) == ["began a", "began b"]


def test_threads_are_shared_out(make_plans, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [shared_threads(jobs) for jobs in (1, 3, 20)] == [8, 2, 1]
    run_all(make_plans("a", "b"), 2)
    assert {line.rsplit(" ")[-1] for line in (tmp_path / "diary").read_text().splitlines()} == {"4"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [shared_threads(jobs) for jobs in (1, 4)] == [3, 2]
    assert run_environment(5)["MKL_NUM_THREADS"] == "5"


def test_ctrl_c_lets_the_runs_save_and_starts_no_further_one(make_plans, diary):
    plans = make_plans("sleeps1", "sleeps2", "never")

    class Interrupting:
        def started(self, plan):
            pass

        def ended(self, outcome):
            pass

        def waited(self, running):
            if len(diary_or_nothing()) == 2:
                raise KeyboardInterrupt

    def diary_or_nothing():
        try:
            return diary()
        except OSError:
            return []

    with pytest.raises(KeyboardInterrupt):
        run_all(plans, 2, monitor=Interrupting())
    assert sorted(diary()) == ["began sleeps1", "began sleeps2", "saved sleeps1", "saved sleeps2"]


def test_a_run_that_does_not_stop_is_ended_by_force(make_plans, diary, monkeypatch):
    monkeypatch.setattr(local, "_STOP_SECONDS", 0.5)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us deaf to it
    timer = threading.Timer(2.0, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_all(make_plans("stubborn"), 1)
    timer.join()
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 30
    assert diary() == ["began stubborn", "ignores stubborn"]
    alive = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "stubborn.yaml" not in alive


@pytest.mark.parametrize(("options", "message"), [({"jobs": 0}, r"jobs \(0\)"), ({"threads": 0}, r"threads \(0\)")])
def test_counts_below_one_are_refused(make_plans, options, message):
    with pytest.raises(ValueError, match=message):
        run_all(make_plans("a"), **options)


def test_two_runs_in_one_folder_are_refused(make_plans):
    with pytest.raises(ValueError, match="two runs share the folder"):
        run_all(make_plans("a", "a"))


def test_the_last_line_of_a_log_is_the_last_that_says_something(tmp_path):
    (tmp_path / "log").write_bytes(b"first\nlast \xff words\n\n")
    assert last_line(tmp_path / "log") == "last \ufffd words"
    assert last_line(tmp_path / "none") == ""
