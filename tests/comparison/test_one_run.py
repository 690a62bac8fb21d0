import json
import subprocess
import sys
import time

import pytest

from zoo.comparison import one_run
from zoo.comparison.one_run import carry_out, current_digests, main, take_lock
from zoo.comparison.runs import Digests, RunPlan
from zoo.config import parse_run_config
from zoo.provenance import code_digest

DIGESTS = Digests(code="c" * 64, data="d" * 64)
HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
file.write("holder"); file.flush()
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setattr(one_run, "current_digests", lambda config: DIGESTS)
    folder = tmp_path / "seed0"
    plan = RunPlan(parse_run_config(["--run_dir", str(folder)]), folder)
    plan.write_config()
    return plan


@pytest.fixture
def trained(monkeypatch):
    """What the trainer was called with."""
    calls = []
    monkeypatch.setattr(one_run, "train", lambda arguments: calls.append(arguments) or 7)
    return calls


def begin(plan):
    plan.folder.mkdir()
    (plan.folder / "config.yaml").write_text(plan.config.to_yaml())


def test_a_new_run_is_stamped_and_begun(plan, trained):
    assert carry_out(plan, plan.config_file) == 7
    assert trained == [["--config", str(plan.config_file)]]
    assert json.loads(plan.beside("json").read_text()) == DIGESTS.to_dict()


def test_an_unfinished_run_goes_on(plan, trained):
    carry_out(plan, plan.config_file)
    begin(plan)
    assert carry_out(plan, plan.config_file) == 7
    assert trained[1:] == [["--resume", str(plan.folder)]]


def test_a_finished_run_is_left_alone(plan, trained):
    begin(plan)
    (plan.folder / "result.json").write_text(json.dumps(DIGESTS.to_dict()))
    assert carry_out(plan, plan.config_file) == 0
    assert trained == []


def test_a_run_of_other_code_is_kept_aside_and_made_anew(plan, trained, capsys):
    begin(plan)
    (plan.folder / "result.json").write_text(json.dumps({**DIGESTS.to_dict(), "code_digest": "old"}))
    assert carry_out(plan, plan.config_file) == 7
    assert trained == [["--config", str(plan.config_file)]]
    assert (plan.folder.with_name("seed0.aside1") / "result.json").exists()
    assert not plan.folder.exists()
    assert "different (the code changed)" in capsys.readouterr().out


def test_the_second_at_a_run_waits_until_the_first_has_ended(plan, trained, capfd):
    holder = [sys.executable, "-c", HOLDER, str(plan.beside("lock")), "1.5"]
    with subprocess.Popen(holder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        began = time.monotonic()
        carry_out(plan, plan.config_file)
        assert time.monotonic() - began > 1
    assert f"Waiting for process holder, which is at {plan.folder}" in capfd.readouterr().out


def test_a_lock_does_not_outlive_a_killed_process(plan):
    holder = [sys.executable, "-c", HOLDER, str(plan.beside("lock")), "60"]
    with subprocess.Popen(holder, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.kill()
    with take_lock(plan):
        pass


def test_digests_are_those_that_a_result_states():
    config = parse_run_config(["--data.num_images", "60", "--data.image_size", "16", "--data.digit_size", "12"])
    digests = current_digests(config)
    assert digests.code == code_digest()
    other = current_digests(parse_run_config(["--data.num_images", "60", "--data.clutter", "1"]))
    assert (len(digests.data), digests.code) == (64, other.code)
    assert digests.data != other.data


def test_a_config_without_a_folder_or_none_at_all_is_refused(tmp_path, capsys):
    (tmp_path / "x.yaml").write_text("seed: 3\n")
    assert main([str(tmp_path / "x.yaml")]) == 2
    assert "must name the run's folder as run_dir" in capsys.readouterr().err


def test_a_run_whose_parent_is_gone_does_not_begin(tmp_path):
    assert main([str(tmp_path / "x.yaml"), "--parent", "999999999"]) == 130
