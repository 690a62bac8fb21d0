"""The fine-tuning study: its arithmetic, one tiny run of it, and that it goes on where it was interrupted."""

import csv
import json

import pytest
import torch

from benchmarks import finetuning
from benchmarks.accuracy_by_epoch import AccuracyByEpoch
from zoo.config import RunConfig
from zoo.training.callbacks import TrainingInterrupted
from zoo.training.run import RunFolder

RECIPE = """\
model:
  name: resnet20
  width_multiplier: 0.25
data:
  name: cluttered_digits
  num_images: 60
  batch_size: 8
  eval_batch_size: 16
trainer:
  accelerator: cpu
  precision: 32-true
  logger: false
"""


@pytest.fixture
def arguments(tmp_path, save_tiny_weights):
    save_tiny_weights(tmp_path / "tiny.yaml")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    document = tmp_path / "page.md"
    document.write_text("Before\n<!-- finetuning -->\n<!-- end finetuning -->\nAfter\n")
    places = {"config": "recipe.yaml", "output_dir": "runs", "output": "rows.csv", "document": "page.md"}
    paths = [part for option, name in places.items() for part in (f"--{option}", str(tmp_path / name))]
    return ["--weights", str(tmp_path / "tiny.yaml"), "--seeds", "0", "1", "--epochs", "0", "1", "2", *paths]


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_tiny_study_starts_equal_at_the_identity_and_writes_rows_table_and_picture(arguments, tmp_path, capsys):
    assert finetuning.main(arguments) == 0
    rows = read(tmp_path / "rows.csv")
    assert len(rows) == 5 * 2 * 3
    top1 = {(row["arm"], int(row["epoch"]), int(row["seed"])): float(row["top1"]) for row in rows}
    for seed in (0, 1):
        assert top1["se, identity start", 0, seed] == top1["cbam, identity start", 0, seed] == top1["plain", 0, seed]
    assert (tmp_path / "finetuning.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("Before\n<!-- finetuning -->\n|  | after 0 | after 1 | after 2 | minus plain after 2 |")
    assert page.endswith("<!-- end finetuning -->\nAfter\n")
    assert "seeds 0, 1, from the weights `tiny`" in page
    config = RunFolder(tmp_path / "runs" / "cbam_fresh_start" / "seed1").config.read_text()
    assert "identity_start: false" in config

    before = (tmp_path / "rows.csv").read_bytes()
    assert finetuning.main(arguments) == 0  # everything is there: nothing is trained, nothing appended
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_an_interrupted_study_goes_on_and_finds_what_an_uninterrupted_one_finds(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning, "ARMS", (finetuning.Arm("se", True),))
    options = finetuning.parse_arguments([*arguments[:2], "--seeds", "0", *arguments[5:]])
    options.output_dir = tmp_path / "whole"
    expected = finetuning.finetune(finetuning.ARMS[0], 0, options)

    options.output_dir = tmp_path / "interrupted"
    on_train_epoch_end = AccuracyByEpoch.on_train_epoch_end

    def stop_in_the_second_epoch(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            raise TrainingInterrupted(tmp_path)
        on_train_epoch_end(self, trainer, pl_module)

    monkeypatch.setattr(AccuracyByEpoch, "on_train_epoch_end", stop_in_the_second_epoch)
    with pytest.raises(TrainingInterrupted):
        finetuning.finetune(finetuning.ARMS[0], 0, options)
    monkeypatch.setattr(AccuracyByEpoch, "on_train_epoch_end", on_train_epoch_end)
    assert finetuning.finetune(finetuning.ARMS[0], 0, options) == expected
    weights = [
        torch.load(tmp_path / which / "se_identity_start" / "seed0" / "checkpoints" / "last.ckpt", weights_only=True)
        for which in ("whole", "interrupted")
    ]
    first, second = (content["state_dict"] for content in weights)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_stopped_study_says_how_to_go_on(arguments, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise TrainingInterrupted(tmp_path)

    monkeypatch.setattr(finetuning, "finetune", stop)
    assert finetuning.main(arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_every_arm_has_the_recipe_and_the_budget_of_the_others(arguments, tmp_path):
    options = finetuning.parse_arguments(arguments)
    configs = [finetuning.create_config(arm, 1, tmp_path / "run", options) for arm in finetuning.ARMS]
    assert all(isinstance(config, RunConfig) for config in configs)
    assert (
        len({json.dumps([config.to_dict()[key] for key in ("data", "optimization", "trainer")]) for config in configs})
        == 1
    )
    assert configs[0].trainer["max_epochs"] == 2
    assert configs[0].optimization.peak_lr == finetuning.PEAK_LR
    assert {config.seed for config in configs} == {1}


def test_differences_are_paired_by_seed():
    plain = {4: {0: 0.90, 1: 0.80}}
    gated = {4: {0: 0.91, 1: 0.83, 2: 0.10}}
    assert finetuning.format_difference(gated, plain, 4) == "+2.00 (+1.00 to +3.00)"
    assert finetuning.format_difference(plain, plain, 4) == ""
    assert finetuning.format_difference(gated, {}, 4) == ""
