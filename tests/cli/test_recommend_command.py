"""The command line of zoo recommend: what is asked, and what is refused in a line."""

import argparse
from pathlib import Path

import pytest
from PIL import Image

from zoo.cli import main
from zoo.cli.recommend_command import add_arguments, read_request


def parse(*words, run_options=()):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    arguments.run_options = list(run_options)
    return read_request(arguments)


@pytest.fixture
def folder(tmp_path):
    def make(size):
        for name in ("a", "b"):
            (tmp_path / "mine" / name).mkdir(parents=True)
            for number in range(4):
                Image.new("RGB", (size, size + 10)).save(tmp_path / "mine" / name / f"{number}.png")
        return str(tmp_path / "mine")

    return make


@pytest.mark.parametrize(
    ("side", "image_size", "model"), [(20, 32, "resnet20"), (70, 64, "resnet20"), (300, 128, "resnet18")]
)
def test_a_folder_is_compared_at_its_own_size_with_a_net_that_suits_it(folder, side, image_size, model):
    request = parse("--data", folder(side))
    assert request.data.name == "image_folder"
    assert request.data.options["image_size"] == image_size
    assert request.model.name == model
    assert request.folder == Path("runs") / "recommendations" / f"mine_{model}"


def test_what_is_said_stands_before_what_is_chosen(folder):
    request = parse(
        "--data", folder(300), "--model", "resnet20(width_multiplier=0.5)", "--budget", "7", "--margin", "1",
        "--latency-budget", "20", "--folder", "there", run_options=["--data.image_size", "48"],
    )  # fmt: skip
    assert "image_size" not in request.data.options
    assert request.recipe == {"data": {"image_size": 48}}
    assert request.model.options == {"width_multiplier": 0.5}
    assert (request.budget_minutes, request.margin_points, request.latency_budget_percent) == (7, 1, 20)
    assert request.folder == Path("there")


def test_a_folder_is_found_by_the_words_of_train_py_too(folder, monkeypatch):
    root = folder(40)
    request = parse("--data", "image_folder", run_options=["--data.root", root])
    assert request.data.options == {"image_size": 32}
    assert request.recipe == {"data": {"root": root}}
    assert request.folder.name == "mine_resnet20"
    monkeypatch.chdir(root)
    assert parse("--data", ".").folder.name == "mine_resnet20"


def test_a_data_set_by_name_with_options():
    request = parse("--data", "cluttered_digits(clutter=3)")
    assert (request.data.name, request.data.options) == ("cluttered_digits", {"clutter": 3})
    assert request.model.name == "resnet20"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "cluttered_digit"], "no folder and no data set. Did you mean 'cluttered_digits'?"),
        (["--data", "image_folder"], "--data image_folder does not say which folder"),
        (["--data", "cluttered_digits", "--data.image_size", "null"], "data.image_size (None) must be a whole number"),
        (["--data", "cluttered_digits", "--data.image_size", "[64, 48]"], "data.image_size ([64, 48]) must be a whole"),
        (["--data", "cluttered_digits", "--budget", "0"], "budget_minutes (0.0) must be above 0"),
        (["--data", "cluttered_digits", "--trainer.max_epochs", "3"], "the budget decides how long runs are"),
        (["--data", "cluttered_digits", "--model", "resnet2O"], "unknown model 'resnet2O'"),
        (["--data", "cluttered_digits", "--data.cluter", "3"], "Did you mean 'data.clutter'?"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, tmp_path, words, message):
    assert main(["recommend", *words, "--folder", str(tmp_path / "answer")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "answer" / "probe").exists()


def test_ctrl_c_ends_with_the_command_that_goes_on(capsys, monkeypatch, tmp_path):
    from zoo.comparison.recommendation import procedure

    def stopped(request, *, say):
        raise KeyboardInterrupt

    monkeypatch.setattr(procedure, "recommend", stopped)
    words = ["recommend", "--data", "cluttered_digits", "--folder", str(tmp_path), "--trainer.precision=32-true"]
    assert main(words) == 130
    assert f"zoo {' '.join(words)}" in capsys.readouterr().err
