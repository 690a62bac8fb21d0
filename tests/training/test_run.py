"""The folder of a run: where it is made, when it may be replaced, and how it is taken up again."""

import pytest

from zoo.config import parse_run_config
from zoo.training.run import RunFolder, create_trainer, resume_run, run_to_resume, start_run


def config(tmp_path, *arguments):
    return parse_run_config(["--output_dir", str(tmp_path / "runs"), *arguments])


def test_each_run_gets_a_folder_of_its_own(tmp_path):
    first = start_run(config(tmp_path, "--model.attention", "se", "--seed", "4"))
    second = start_run(config(tmp_path, "--model.attention", "se", "--seed", "4"))
    assert first.path == tmp_path / "runs" / "cluttered_digits" / "resnet20_se" / "seed4"
    assert second.path.name == "seed4-2"


def test_the_folder_holds_the_resolved_config_and_can_be_moved(tmp_path):
    original = config(tmp_path, "--trainer.max_epochs", "3")
    run = start_run(original)
    moved = run.path.rename(tmp_path / "moved")
    resumed, folder = resume_run(moved)
    assert resumed == original
    assert folder.path == moved


def test_a_run_is_not_overwritten_unless_asked(tmp_path):
    target = tmp_path / "mine"
    run = start_run(config(tmp_path, "--run_dir", str(target)))
    (run.path / "result.json").write_text("{}")
    with pytest.raises(ValueError, match="--overwrite true"):
        start_run(config(tmp_path, "--run_dir", str(target)))
    assert run.result.exists()
    again = start_run(config(tmp_path, "--run_dir", str(target), "--overwrite", "true"))
    assert again.config.exists()
    assert not again.result.exists()


def test_a_folder_that_is_no_run_is_never_deleted(tmp_path):
    target = tmp_path / "thesis"
    target.mkdir()
    (target / "chapter.tex").write_text("precious")
    with pytest.raises(ValueError, match="something that is no run"):
        start_run(config(tmp_path, "--run_dir", str(target), "--overwrite", "true"))
    assert (target / "chapter.tex").read_text() == "precious"


def test_resuming_needs_an_unfinished_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        resume_run(tmp_path)
    run = start_run(config(tmp_path))
    run.result.write_text("{}")
    with pytest.raises(ValueError, match="is finished"):
        resume_run(run.path)


@pytest.mark.parametrize("arguments", [["--resume"], ["--resume", "a", "--seed", "1"], ["--seed", "1", "--resume=a"]])
def test_resume_stands_alone(arguments):
    with pytest.raises(ValueError, match="stands alone"):
        run_to_resume(arguments)


def test_resume_is_found():
    assert run_to_resume(["--resume", "runs/a"]) == run_to_resume(["--resume=runs/a"]) == "runs/a"
    assert run_to_resume(["--seed", "1"]) is None


def test_every_option_of_the_lightning_trainer_reaches_it(tmp_path):
    arguments = ["--trainer.gradient_clip_val", "0.5", "--trainer.accumulate_grad_batches", "4"]
    arguments += ["--trainer.callbacks+=lightning.pytorch.callbacks.EarlyStopping"]
    arguments += ["--trainer.callbacks.monitor=val_loss", "--trainer.max_epochs", "7", "--trainer.logger", "false"]
    chosen = config(tmp_path, *arguments)
    trainer = create_trainer(chosen, start_run(chosen))
    assert (trainer.gradient_clip_val, trainer.accumulate_grad_batches, trainer.max_epochs) == (0.5, 4, 7)
    assert [callback.monitor for callback in trainer.early_stopping_callbacks] == ["val_loss"]
    assert trainer.loggers == []


def test_files_of_a_run_lie_in_its_folder(tmp_path):
    run = RunFolder(tmp_path)
    assert run.checkpoint is None
    assert run.resume_command == f"python train.py --resume {tmp_path}"
