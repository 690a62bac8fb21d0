"""Ray for real, on a cluster of two workers that the test starts itself."""

import json
import sys

import pytest

from zoo.comparison.choices import parse_choices
from zoo.comparison.engines import ray_cluster
from zoo.comparison.runs import RunPlan
from zoo.comparison.study import Study
from zoo.config import parse_run_config

ray = pytest.importorskip("ray", reason="Ray is an optional dependency")

TINY = {
    "data": {"num_images": 240, "image_size": 16, "digit_size": 12, "batch_size": 32},
    "optimization": {"warmup_epochs": 0},
    "trainer": {"max_epochs": 1, "accelerator": "cpu"},
}


@pytest.fixture(scope="module")
def _cluster():
    ray.init(num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


class Diary:
    def __init__(self):
        self.entries = []

    def started(self, plan):
        self.entries.append(("started", plan.label))

    def waited(self, running):
        assert len(running) <= 2

    def ended(self, outcome):
        self.entries.append(("ended", outcome.plan.label))


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:ray")
def test_runs_of_a_study_are_tasks_of_a_cluster_of_two_workers(tmp_path):
    models = parse_choices("resnet20(width_multiplier=0.25)")
    study = Study("toy", models, parse_choices("none,se"), parse_choices("cluttered_digits"), (0,), TINY)
    plans = study.plans(tmp_path)
    broken = RunPlan(
        parse_run_config(["--data.name", "image_folder", "--data.root", str(tmp_path / "no")]), tmp_path / "b"
    )
    diary = Diary()
    outcomes = ray_cluster.run_all([*plans, broken], monitor=diary)
    assert [outcome.plan for outcome in outcomes] == [*plans, broken]
    assert [outcome.failed for outcome in outcomes] == [False, False, True]
    assert "error:" in outcomes[2].message
    for plan in plans:
        assert json.loads(plan.run.result.read_text())["data"] == "cluttered_digits"
    labels = {plan.label for plan in [*plans, broken]}
    assert {label for what, label in diary.entries if what == "ended"} == labels
    assert ray_cluster.num_slots(1) == 2

    with pytest.raises(ValueError, match="asks for 3 CPU, which no machine of the Ray cluster has"):
        ray_cluster.run_all(plans, threads=3)


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'vision-attention-zoo\[ray\]'"):
        ray_cluster.connect()


def test_a_folder_that_a_machine_does_not_see_is_named(tmp_path):
    with pytest.raises(ValueError, match="is not seen by every machine"):
        ray_cluster.carry_out(RunPlan(parse_run_config([]), tmp_path / "x"), {})


def test_a_gpu_is_asked_for_where_the_config_says_so():
    nodes = [{"Alive": True, "Resources": {"CPU": 8.0}}, {"Alive": False, "Resources": {"CPU": 8.0, "GPU": 1.0}}]
    ray_cluster._check_resources(nodes, {"num_cpus": 8, "num_gpus": 0})
    with pytest.raises(ValueError, match="asks for 1 CPU and 1 GPU, which no machine"):
        ray_cluster._check_resources(nodes, {"num_cpus": 1, "num_gpus": 1})
