import dataclasses
import json
from pathlib import Path

import pytest

from zoo.comparison.runs import Cell, Digests, RunPlan, assess, move_aside, placeless, stamp
from zoo.config import parse_run_config

DIGESTS = Digests(code="c" * 64, data="d" * 64)


@pytest.fixture
def plan(tmp_path):
    folder = tmp_path / "cell" / "seed0"
    config = parse_run_config(["--trainer.max_epochs", "2", "--run_dir", str(folder)])
    return RunPlan(config, folder, Cell("resnet20", "none", "cluttered_digits"))


def begin(plan, **changes):
    plan.folder.mkdir(parents=True)
    config = dataclasses.replace(plan.config, **changes)
    (plan.folder / "config.yaml").write_text(config.to_yaml())


def finish(plan, digests=DIGESTS):
    (plan.folder / "result.json").write_text(json.dumps(digests.to_dict()))


def test_nothing_and_an_empty_folder_are_a_new_run(plan):
    assert assess(plan, DIGESTS).status == "new"
    plan.folder.mkdir(parents=True)
    assert assess(plan, DIGESTS).status == "new"


def test_the_planned_run_counts_wherever_its_folder_lies_now(plan):
    begin(plan, run_dir="elsewhere", output_dir="elsewhere", weights_dir="elsewhere")
    stamp(plan, DIGESTS)
    assert assess(plan, DIGESTS).status == "unfinished"
    finish(plan)
    assert assess(plan, DIGESTS).status == "finished"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 1}, "its seed differs"),
        ({"compile": True}, "its compile differs"),
        ({"model": {"name": "resnet20", "attention": "se"}}, "differ"),
    ],
)
def test_another_config_is_not_reused(plan, changes, reason):
    begin(plan, **changes)
    finish(plan)
    standing = assess(plan, DIGESTS)
    assert standing.status == "different"
    assert reason in standing.reason


def test_another_option_of_a_section_is_named(plan):
    begin(plan, trainer={**plan.config.trainer, "max_epochs": 3})
    assert assess(plan, DIGESTS).reason == "its trainer.max_epochs differs"


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("kind", ["code", "data"])
def test_other_code_or_data_are_not_reused(plan, kind, finished):
    begin(plan)
    made_from = dataclasses.replace(DIGESTS, **{kind: "e" * 64})
    finish(plan, made_from) if finished else stamp(plan, made_from)
    standing = assess(plan, DIGESTS)
    assert (standing.status, standing.reason) == ("different", f"the {kind} changed")


def test_an_unfinished_run_of_unknown_origin_is_not_resumed(plan):
    begin(plan)
    assert assess(plan, DIGESTS).reason == "it does not say which code and data it was begun with"
    plan.beside("json").write_text("[half")
    assert assess(plan, DIGESTS).status == "different"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("notes.txt", "7", "holds no run"),
        ("config.yaml", "7", "config is damaged"),
        ("config.yaml", "seed: [", "config is damaged"),
        ("config.yaml", "data: {name: [", "config is damaged"),
    ],
)
def test_something_else_in_the_folder_is_no_planned_run(plan, name, content, reason):
    plan.folder.mkdir(parents=True)
    (plan.folder / name).write_text(content)
    standing = assess(plan, DIGESTS)
    assert standing.status == "different"
    assert reason in standing.reason


def test_what_is_moved_aside_is_kept_under_a_free_name(plan):
    for number in (1, 2):
        begin(plan, seed=number)
        aside = move_aside(plan)
        assert aside.name == f"seed0.aside{number}"
        assert f"seed: {number}" in (aside / "config.yaml").read_text()
        assert not plan.folder.exists()


def test_the_config_file_reads_back_as_the_plan(plan):
    plan.write_config()
    assert parse_run_config(["--config", str(plan.config_file)]) == plan.config


def test_a_placeless_config_names_no_folder_of_this_machine(plan):
    config = dataclasses.replace(plan.config, data={"name": "image_folder", "root": "/home/ada/pets"}, output_dir="/x")
    values = placeless(config.to_dict())
    assert "/" not in json.dumps(values)
    assert values["data"] == {"name": "image_folder", "root": None}


def test_a_command_names_its_config_from_the_studys_folder_on(plan):
    command = "python -m zoo.training --config /home/ada/runs/cluttered_digits/resnet20_none/seed0.yaml"
    expected = "python -m zoo.training --config cluttered_digits/resnet20_none/seed0.yaml"
    assert plan.placeless_command(command) == expected


def test_cells_are_named_with_their_data_only_where_there_are_several():
    cell = Cell("resnet20", "cbam(identity_start=True)", "cluttered_digits(clutter=8)")
    assert cell.title == "resnet20+cbam(identity_start=True)"
    assert dataclasses.replace(cell, shows_data=True).title == f"{cell.title} @ cluttered_digits(clutter=8)"
    assert cell.folder == Path("cluttered_digits-clutter-8/resnet20_cbam-identity_start-True")
