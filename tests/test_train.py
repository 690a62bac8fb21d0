"""train.py as a user runs it: what a run leaves behind, and that it survives what happens to runs."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import train
import zoo
from zoo.provenance import code_digest
from zoo.serialization import read_yaml
from zoo.training.image_classifier import ImageClassifier

ROOT = Path(__file__).parent.parent
SMALL = ["--model.width_multiplier", "0.25", "--data.num_images", "900", "--data.batch_size", "64"]
SMALL += ["--trainer.accelerator", "cpu", "--trainer.logger", "false"]
# Everything that could be lost on the way: an average with a counter, random mixing, a gradient over two batches,
# validation every other epoch.
DELICATE = [*SMALL, "--model.attention", "cbam", "--trainer.max_epochs", "4", "--trainer.check_val_every_n_epoch", "2"]
DELICATE += ["--optimization.ema_decay", "0.9", "--optimization.mixup_alpha", "0.2", "--optimization.cutmix_alpha", "1"]
DELICATE += ["--trainer.accumulate_grad_batches", "2", "--optimization.warmup_epochs", "1.5"]


def start(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell may have started us deaf to Ctrl-C
    return subprocess.Popen(
        [sys.executable, ROOT / "train.py", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, preexec_fn=hear, **options,
    )  # fmt: skip


def run_main(*arguments):
    assert train.main([str(argument) for argument in arguments]) == 0


def rows(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def without_times(run):
    return [
        {k: v for k, v in row.items() if k not in ("train_seconds", "images_per_second")}
        for row in rows(run / "metrics.csv")
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A delicate run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_main(*DELICATE, "--run_dir", folder)
    return folder


def test_an_installed_package_trains_without_the_script(tmp_path):
    """``python -m zoo.training`` from elsewhere is the same program, and the card says how it was called."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "zoo.training", *SMALL, "--trainer.max_epochs", "1", "--run_dir", "run"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["command"].startswith("python -m zoo.training --model.width_multiplier 0.25")


def test_a_run_leaves_everything_behind(tmp_path, capsys):
    folder = tmp_path / "run"
    weights = tmp_path / "weights"
    run_main(
        *SMALL, "--trainer.max_epochs", 2, "--trainer.logger", "true", "--run_dir", folder, "--weights_dir", weights
    )
    printed = capsys.readouterr().out
    assert "epoch  2/2" in printed
    assert "selected epoch" in printed
    assert f"python evaluate.py --weights {folder}" in printed.replace("\n", "")
    expected = ["config.yaml", "metrics.csv", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "weights.safetensors"]
    expected += ["weights.yaml", "result.json", "test_predictions.csv", "learning_curves.png", "tensorboard"]
    assert [name for name in expected if not (folder / name).exists()] == []

    result = json.loads((folder / "result.json").read_text())
    assert result["code_digest"] == code_digest()
    assert len(result["data_digest"]) == 64
    predictions = rows(folder / "test_predictions.csv")
    assert len(predictions) == result["last_epoch"]["num_images"]
    share = sum(int(row["correct"]) for row in predictions) / len(predictions)
    assert share == pytest.approx(result["selected_epoch"]["top1"])
    assert result["validation"] == {
        row["epoch"]: pytest.approx(float(row["val_top1"])) for row in rows(folder / "metrics.csv")
    }

    model, card = zoo.load_pretrained(str(folder))
    assert card.metrics["selected_epoch"]["top1"] == pytest.approx(result["selected_epoch"]["top1"])
    assert card.training == read_yaml(folder / "config.yaml")
    shared = (weights / "resnet20.cluttered_digits.yaml").read_text()
    assert str(folder) not in shared
    assert "command: " in shared
    named, _ = zoo.load_pretrained("resnet20.cluttered_digits", folder=weights)
    image = torch.zeros(1, 3, 32, 32)
    assert torch.equal(model(image), named(image))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path, whole_run):
    run_main(*DELICATE, "--run_dir", tmp_path / "again")
    assert (tmp_path / "again/weights.safetensors").read_bytes() == (whole_run / "weights.safetensors").read_bytes()
    run_main(*SMALL, "--trainer.max_epochs", 1, "--seed", 1, "--run_dir", tmp_path / "other")
    run_main(*SMALL, "--trainer.max_epochs", 1, "--seed", 0, "--run_dir", tmp_path / "one")
    assert (tmp_path / "other/weights.safetensors").read_bytes() != (tmp_path / "one/weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("number", "status", "after_epoch"),
    [(signal.SIGKILL, -9, 1), (signal.SIGKILL, -9, 3), (signal.SIGINT, 130, 2), (signal.SIGTERM, 130, 3)],
)
def test_a_run_that_was_ended_goes_on_to_the_same_bits(tmp_path, whole_run, number, status, after_epoch):
    folder = tmp_path / "ended"
    output = []
    with start(*DELICATE, "--run_dir", folder) as process:
        for line in process.stdout:
            output.append(line)
            if line.startswith(f"epoch  {after_epoch}/4"):
                process.send_signal(number)
    assert process.returncode == status, "".join(output)
    if number != signal.SIGKILL:
        assert f"python train.py --resume {folder}" in "".join(output)
    assert not (folder / "result.json").exists()
    run_main("--resume", folder)
    assert (folder / "weights.safetensors").read_bytes() == (whole_run / "weights.safetensors").read_bytes()
    assert without_times(folder) == without_times(whole_run)


def test_a_run_killed_before_its_first_epoch_ended_starts_again(tmp_path, whole_run):
    folder = tmp_path / "early"
    with start(*DELICATE, "--run_dir", folder) as process:
        while not (folder / "config.yaml").exists():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        process.kill()
    run_main("--resume", folder)
    assert (folder / "weights.safetensors").read_bytes() == (whole_run / "weights.safetensors").read_bytes()


def test_a_loss_of_nan_stops_the_run_with_step_rate_and_the_last_good_checkpoint(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "broken"
    original = ImageClassifier.training_step

    def step(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        return loss * float("nan") if self.current_epoch == 1 and batch_idx == 2 else loss

    monkeypatch.setattr(ImageClassifier, "training_step", step)
    arguments = [*SMALL, "--trainer.max_epochs", "3", "--run_dir", str(folder), "--optimization.peak_lr", "0.0625"]
    assert train.main(arguments) == 1
    message = capsys.readouterr().err
    assert "the loss is nan at step 12 (epoch 2), learning rate 0.0" in message
    assert str(folder / "checkpoints" / "last.ckpt") in message
    kept = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert kept["epoch"] == 0
    assert all(value.isfinite().all() for value in kept["state_dict"].values())
    assert not (folder / "weights.safetensors").exists()


def test_a_full_disk_is_one_clear_line_and_the_checkpoint_before_is_whole(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "full"
    original = os.fsync
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if (folder / "checkpoints" / "last.ckpt").exists():
            raise OSError(28, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert train.main([*SMALL, "--trainer.max_epochs", "3", "--run_dir", str(folder)]) == 2
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert f"--resume {folder}" in message
    assert torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 0


def test_checkpoints_hold_nothing_that_must_be_trusted(whole_run):
    for file in (whole_run / "checkpoints").iterdir():
        torch.load(file, weights_only=True)
    assert load_file(whole_run / "weights.safetensors")


def test_two_processes_give_the_figures_of_one(tmp_path):
    """Same weights, evaluated by one process and by two: each test image counts once, and the figures are equal."""
    common = [
        *SMALL,
        "--trainer.max_epochs",
        "1",
        "--trainer.limit_train_batches",
        "1",
        "--optimization.peak_lr",
        "1e-9",
    ]
    common += ["--trainer.precision", "32-true"]
    with start(*common, "--trainer.devices", "2", "--trainer.strategy", "ddp", "--run_dir", tmp_path / "two") as two:
        output = two.communicate()[0]
    assert two.returncode == 0, output
    run_main(*common, "--run_dir", tmp_path / "one")
    one, both = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert [row["image"] for row in rows(tmp_path / "two/test_predictions.csv")] == [
        row["image"] for row in rows(tmp_path / "one/test_predictions.csv")
    ]
    assert both["last_epoch"]["num_images"] == one["last_epoch"]["num_images"]
    first, second = (rows(tmp_path / name / "metrics.csv")[0] for name in ("one", "two"))
    # Batch statistics of the one training step differ between one batch of 64 and two, by little.
    assert float(second["val_loss"]) == pytest.approx(float(first["val_loss"]), rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--trainer.max_time", "5"], "not a valid duration"),
        (["--trainer.accelerator", "abacus"], "invalid accelerator name"),
        (["--trainer.max_epochs", "0"], "at least 1"),
        (["--seed", "-1"], "seed (-1) must be from 0"),
        (["--trainer.fast_dev_run", "true"], "train.py sets it itself"),
        (["--model.num_classes", "5"], "The data decide it"),
    ],
)
def test_a_run_that_cannot_start_leaves_no_folder_behind(tmp_path, capsys, arguments, expected):
    try:
        status = train.main([*SMALL, "--run_dir", str(tmp_path / "run"), *arguments])
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_before_the_first_step_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    with start(*SMALL, "--trainer.max_epochs", "50", "--run_dir", folder) as process:
        for line in process.stdout:
            if line.startswith("Run folder"):
                process.send_signal(signal.SIGINT)
                break
        output = process.stdout.read()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "Stopped" in output


def test_double_precision_runs_and_is_saved_as_float32(tmp_path):
    run_main(*SMALL, "--trainer.max_epochs", 1, "--trainer.precision", "64-true", "--run_dir", tmp_path / "run")
    assert load_file(tmp_path / "run" / "weights.safetensors")["conv1.weight"].dtype == torch.float32


def test_a_callers_mistake_is_one_line(tmp_path, capsys):
    assert train.main(["--data.name", "image_folder", "--data.root", str(tmp_path / "absent")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("train.py: error:")
    assert "absent" in message
    assert message.count("\n") == 1


def test_pretrained_weights_start_a_run(tmp_path, whole_run):
    arguments = [*SMALL, "--model.attention", "cbam", "--model.pretrained", whole_run, "--trainer.max_epochs", 1]
    run_main(
        *arguments, "--run_dir", tmp_path / "more", "--optimization.peak_lr", "1e-9", "--trainer.precision", "32-true"
    )
    before, after = load_file(whole_run / "weights.safetensors"), load_file(tmp_path / "more/weights.safetensors")
    assert torch.allclose(before["conv1.weight"], after["conv1.weight"], atol=1e-6)
