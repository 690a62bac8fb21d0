"""One run, from its arguments to its result: the story behind ``train.py``.

An installed wheel, which has no ``train.py``, runs it as ``python -m zoo.training``.
"""

import sys
from collections.abc import Sequence

from lightning.pytorch import seed_everything

from zoo.config import parse_run_config
from zoo.data import create_data
from zoo.training.callbacks import TrainingInterrupted
from zoo.training.report import announce_run, finish_run, print_result
from zoo.training.run import create_trainer, resume_run, run_to_resume, start_run
from zoo.training.tasks import find_task


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    try:
        return train(list(sys.argv[1:] if arguments is None else arguments))
    except (ValueError, OSError) as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped before training began.", file=sys.stderr)
        return 130


def train(arguments: list[str]) -> int:
    """Train, test and report one run, new or resumed."""
    resumed = run_to_resume(arguments)
    config, run = resume_run(resumed) if resumed else (parse_run_config(arguments), None)
    seed_everything(config.seed, workers=True, verbose=False)

    task = find_task(config)
    data = create_data(**config.data, shuffle_seed=config.seed)
    data.check()
    model = task.create_model(config, data)
    system = task.create_system(model, data, config)

    run = run or start_run(config)
    try:
        trainer = create_trainer(config, run)
    except ValueError:
        run.discard()
        raise
    announce_run(config, run, data, model)
    try:
        trainer.fit(system, datamodule=data, ckpt_path=run.checkpoint if resumed else None, weights_only=True)
    except TrainingInterrupted:
        print(f"\nStopped, and nothing is lost. Go on with\n  {run.resume_command}", file=sys.stderr)
        return 130
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second
        print(f"\nStopped at once. Go on from the last saved epoch with\n  {run.resume_command}", file=sys.stderr)
        return 130
    except FloatingPointError as error:
        kept = f"the last good checkpoint is {run.checkpoint}" if run.checkpoint else "no epoch was completed"
        print(f"train.py: error: {error}; {kept}", file=sys.stderr)
        return 1
    except OSError as error:
        raise OSError(f"{error}; what was saved before is whole, go on with {run.resume_command}") from error

    result = finish_run(config, run, trainer, data, model)
    if trainer.is_global_zero:
        print_result(config, run, result)
    return 0
