import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.cli import compare_command
from zoo.cli.main import main
from zoo.comparison import collection, cost
from zoo.comparison.engines import local, ray_cluster
from zoo.comparison.engines.local import Outcome
from zoo.comparison.results import read_results
from zoo.config import parse_run_config

ROOT = Path(__file__).parents[2]
STUDY = """
models: ["resnet20(width_multiplier=0.25)"]
attention: [none, se]
data: [cluttered_digits]
seeds: 1
recipe:
  data: {num_images: 240, image_size: 16, digit_size: 12, batch_size: 32}
  optimization: {warmup_epochs: 0}
  trainer: {max_epochs: 40, precision: 32-true}
"""
GRID = ["--models", "resnet20(width_multiplier=0.25)", "--attention", "none,se", "--data", "cluttered_digits"]


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return tmp_path / "runs" / "studies" / "tiny" / "cluttered_digits"


def fail(capsys, *words):
    assert main(["compare", *words]) == 2
    return capsys.readouterr().err.strip()


def test_dry_run_prints_one_command_per_run_that_a_shell_can_run_alone(study, capsys):
    assert main(["compare", "tiny.yaml", "--dry-run", "--threads", "2"]) == 0
    output = capsys.readouterr()
    commands = output.out.splitlines()
    assert len(commands) == 2
    assert "Study tiny: 2 runs, 0 finished" in output.err
    for command, attention in zip(commands, ("none", "se"), strict=True):
        subprocess.run(["sh", "-n", "-c", command], check=True)
        *variables, python, option, module, config_file = shlex.split(command)
        assert dict(word.split("=") for word in variables)["OMP_NUM_THREADS"] == "2"
        assert [python, option, module] == [sys.executable, "-m", "zoo.comparison.one_run"]
        config = parse_run_config(["--config", config_file])
        assert config.model["attention"] == attention
        assert not Path(config.run_dir).exists()


def test_the_command_line_plans_the_same_runs_as_a_file(study, capsys):
    words = ["--seeds", "1", "--name", "tiny", "--data.num_images", "240", "--data.image_size=16"]
    words += ["--data.digit_size", "12", "--data.batch_size", "32", "--optimization.warmup_epochs", "0"]
    words += ["--trainer.max_epochs", "40", "--trainer.precision", "32-true", "--dry-run"]
    assert main(["compare", "tiny.yaml", "--dry-run"]) == 0
    first = {path: path.read_text() for path in study.rglob("*.yaml")}
    assert main(["compare", *GRID, *words]) == 0
    assert len(first) == 2
    assert {path: path.read_text() for path in study.rglob("*.yaml")} == first
    outputs = capsys.readouterr().out.splitlines()
    assert outputs[:2] == outputs[2:]


@pytest.fixture
def engine(monkeypatch):
    """In place of the engine: every run fails, as its log says."""
    asked = []

    def run_all(plans, jobs, *, threads, monitor):
        asked.append((len(plans), jobs, threads))
        outcomes = []
        for plan in plans:
            plan.folder.mkdir(parents=True)
            plan.log.write_text("error: the loss is nan\n")
            monitor.started(plan)
            outcomes.append(Outcome(plan, 1, 2.0))
            monitor.ended(outcomes[-1])
        return outcomes

    monkeypatch.setattr(local, "run_all", run_all)
    return asked


def test_failed_runs_are_listed_with_their_logs_and_make_the_status_1(study, engine, capsys):
    assert main(["compare", "tiny.yaml", "--jobs", "3", "--threads", "2"]) == 1
    assert engine == [(2, 3, 2)]
    output = capsys.readouterr()
    assert "2 of 2 runs failed:" in output.err
    assert "resnet20(width_multiplier=0.25)+se, seed 0: error: the loss is nan" in output.err
    assert "resnet20-width_multiplier-0.25_se/seed0.log" in output.err
    assert "FAILED" in output.out


def test_a_study_without_a_finished_run_has_nothing_to_report(study, engine, capsys):
    assert main(["compare", "tiny.yaml", "--finished-only"]) == 1
    assert engine == []
    assert "No run of study tiny is finished: there is nothing to report" in capsys.readouterr().err


def test_results_stand_where_the_cost_cannot_be_measured(study, monkeypatch, capsys):
    results = read_results(ROOT / "benchmarks" / "studies" / "cluttered_digits_claims.parquet")

    def no_gpu(*arguments, **options):
        raise RuntimeError("No supported gpu backend found!")

    monkeypatch.setattr(local, "run_all", lambda plans, *arguments, **options: [])
    monkeypatch.setattr(collection, "collect", lambda *arguments, **options: results)
    monkeypatch.setattr(cost, "load_or_measure_cost", no_gpu)
    monkeypatch.setattr(compare_command, "report", lambda results, folder: None)
    assert main(["compare", "tiny.yaml"]) == 0
    assert "The cost is left out, for it could not be measured here: No supported gpu" in capsys.readouterr().err
    assert len(read_results(study.parent / "tiny.parquet").runs) == len(results.runs)


def test_the_engine_is_rays_where_asked_for(study, monkeypatch, capsys):
    asked = []

    def run_all(plans, *, threads, monitor):
        asked.append((len(plans), threads))
        return [Outcome(plan, 1, 0.0, error="no worker left") for plan in plans]

    monkeypatch.setattr(ray_cluster, "run_all", run_all)
    monkeypatch.setattr(ray_cluster, "num_slots", lambda threads: 4)
    assert main(["compare", "tiny.yaml", "--engine", "ray"]) == 1
    assert asked == [(2, 1)]
    assert "seed 0: no worker left" in capsys.readouterr().err


def test_an_interruption_tells_how_to_go_on(study, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_all", interrupted)
    assert main(["compare", *GRID, "--seeds", "2", "--trainer.max_epochs", "3"]) == 130
    (command,) = [line.strip() for line in capsys.readouterr().err.splitlines() if line.startswith("  zoo compare")]
    assert shlex.split(command) == ["zoo", "compare", *GRID, "--seeds", "2", "--trainer.max_epochs", "3"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "zoo compare needs a study file, or --models and --attention and --data"),
        (["--models", "resnet20"], "needs a study file, or --attention and --data"),
        (["tiny.yaml", "--models", "resnet20"], "--models has no effect beside tiny.yaml"),
        (["tiny.yaml", "--trainer.max_epochs", "3"], "--trainer.max_epochs has no effect beside tiny.yaml"),
        (["tiny.yaml", "--jobs", "0"], r"--jobs (0) must be at least 1"),
        (["tiny.yaml", "--threads", "0"], r"--threads (0) must be at least 1"),
        (["tiny.yaml", "--cost-rounds", "-1"], r"--cost-rounds (-1) must be at least 0"),
        (["tiny.yaml", "--engine", "ray", "--jobs", "2"], "--jobs has no effect with --engine ray"),
        (["tiny.yaml", "--dry-run", "--engine", "ray"], "--engine has no effect with --dry-run"),
        (["tiny.yaml", "--dry-run", "--cost-rounds", "2"], "--cost-rounds has no effect with --dry-run"),
        (["tiny.yaml", "--dry-run", "--weights-dir", "x"], "--weights-dir has no effect with --dry-run"),
        (["tiny.yaml", "--finished-only", "--jobs", "2"], "--jobs has no effect with --finished-only"),
        (["tiny.yaml", "--finished-only", "--engine", "ray"], "--engine has no effect with --finished-only"),
        (["tiny.yaml", "--finished-only", "--dry-run"], "--dry-run has no effect with --finished-only"),
        (["x.parquet", "--finished-only"], "--finished-only has no effect beside x.parquet"),
        (["tiny.yaml", "--output", "x.csv"], "--output x.csv must end in .parquet"),
        (["tiny.yaml", "--reuse", "none.parquet"], "results file none.parquet does not exist"),
        (["none.yaml"], "study file none.yaml does not exist"),
        (["x.parquet", "--jobs", "2"], "--jobs has no effect beside x.parquet"),
        (["x.parquet"], "results file x.parquet does not exist"),
        ([*GRID, "--trainer.max_epoch", "3"], "Did you mean 'trainer.max_epochs'?"),
        ([*GRID, "--optimisation.peak_lr", "3"], "optimisation"),
    ],
)
def test_a_mistake_is_one_line(study, capsys, words, message):
    error = fail(capsys, *words)
    assert message in error
    assert error.startswith("zoo: error: ")
    assert len(error.splitlines()) == 1


def test_options_of_a_run_are_refused_by_other_commands(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["list", "models", "--trainer.max_epochs", "3"])
    assert "unknown argument '--trainer.max_epochs'" in capsys.readouterr().err


def test_results_are_reported_again_without_training(study, monkeypatch, capsys):
    reported = []
    monkeypatch.setattr(compare_command, "report", lambda results, folder: reported.append((results, folder)))
    monkeypatch.setattr("zoo.comparison.results.read_results", lambda path: path.name)
    assert main(["compare", "some/x.parquet"]) == 0
    assert main(["compare", "some/x.parquet", "--folder", "elsewhere"]) == 0
    assert reported == [("x.parquet", Path("some/x_report")), ("x.parquet", Path("elsewhere"))]


def environment():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path}


def start():
    code = "import sys; from zoo.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "compare", "tiny.yaml", "--cost-rounds", "0"]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(condition, what, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def is_free(lock):
    holder = f"import fcntl; fcntl.lockf(open({str(lock)!r}, 'a+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", holder], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_a_study_begun_by_hand_and_killed_in_the_middle_does_only_what_is_missing(study, capsys):
    """The first run by its printed command, ``kill -9`` of ``zoo compare`` in the second, then the same again."""
    plain, gated = (study / f"resnet20-width_multiplier-0.25_{name}" for name in ("none", "se"))
    assert main(["compare", "tiny.yaml", "--dry-run"]) == 0
    command = capsys.readouterr().out.splitlines()[0]
    subprocess.run(command, shell=True, check=True, env=environment(), capture_output=True)
    finished = (plain / "seed0" / "result.json").stat().st_mtime_ns

    with start() as process:
        wait_for((gated / "seed0" / "metrics.csv").exists, "the first epoch of the second run")
        process.kill()
    assert not (gated / "seed0" / "result.json").exists()
    wait_for(lambda: is_free(gated / "seed0.lock"), "the end of the orphaned run")
    assert "Stopped, and nothing is lost" in (gated / "seed0.log").read_text()
    epochs = (gated / "seed0" / "metrics.csv").read_text()

    assert main(["compare", "tiny.yaml", "--finished-only"]) == 0
    output = capsys.readouterr().out
    assert "resnet20(width_multiplier=0.25)+none" in output
    assert "resnet20(width_multiplier=0.25)+se lacks seed 0." in output
    part = read_results(study.parent / "tiny.parquet")
    assert part.runs["attention"].tolist() == ["none"]
    assert part.cost.empty  # other runs may be going on
    assert not (study.parent / "cost.json").exists()
    assert (gated / "seed0" / "metrics.csv").read_text() == epochs

    with start() as process:
        output, _ = process.communicate(timeout=250)
    assert process.returncode == 0, output
    assert "Study tiny: 2 runs, 1 finished, 1 to go on with" in output
    assert (plain / "seed0" / "result.json").stat().st_mtime_ns == finished
    assert not (plain / "seed0.log").exists()
    assert f"{gated.relative_to(study.parents[3])}/seed0: unfinished" in (gated / "seed0.log").read_text()
    assert (gated / "seed0" / "metrics.csv").read_text().startswith(epochs)
    results = read_results(study.parent / "tiny.parquet")
    assert results.runs["attention"].tolist() == ["none", "se"]
    assert results.epochs.groupby("cell").size().tolist() == [40, 40]
    assert (study.parent / "report" / "report.html").exists()

    again = ["--folder", str(study.parents[3] / "elsewhere"), "--reuse", str(study.parent / "tiny.parquet")]
    assert main(["compare", "tiny.yaml", *again, "--cost-rounds", "0"]) == 0
    error = capsys.readouterr().err
    assert "tiny.parquet: 2 of its 2 runs count as done" in error
    assert "Study tiny: 2 runs, 2 finished, 0 to go on with" in error
    again = read_results(study.parents[3] / "elsewhere" / "tiny.parquet")
    assert again.runs["selected_top1"].tolist() == results.runs["selected_top1"].tolist()
