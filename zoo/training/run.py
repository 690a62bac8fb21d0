"""A run: its folder, its trainer, and what is left in the folder when it ends."""

import logging
import shlex
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from zoo.config import RunConfig, create_parser, instantiate_trainer_arguments, to_run_config
from zoo.serialization import read_yaml, write_atomically
from zoo.training.callbacks import (
    AtomicCheckpointIO,
    EpochBar,
    EpochLog,
    SaveLastAndBest,
    SeedEachStep,
    StopOnNonFiniteLoss,
    StopOnSignal,
)
from zoo.training.gates_first import TrainGatesFirst
from zoo.training.memory import keep_freed_memory
from zoo.training.optimization import create_weight_averaging
from zoo.training.tasks import find_task


class RunFolder:
    """The files of one run.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.epochs = self.path / "metrics.csv"
        self.curves = self.path / "learning_curves.png"
        self.checkpoints = self.path / "checkpoints"
        self.last = self.checkpoints / "last.ckpt"
        self.best = self.checkpoints / "best.ckpt"
        self.card = self.path / "weights.yaml"
        self.result = self.path / "result.json"
        self.predictions = self.path / "test_predictions.csv"

    @property
    def is_finished(self) -> bool:
        """Whether the run's result stands."""
        return self.result.exists()

    @property
    def checkpoint(self) -> Path | None:
        """What training goes on from; ``None`` before the first epoch ended."""
        return self.last if self.last.exists() else None

    def discard(self) -> None:
        """Delete a folder that holds nothing but the config of a run that could not start."""
        if self.path.is_dir() and [path.name for path in self.path.iterdir()] == [self.config.name]:
            shutil.rmtree(self.path)

    @property
    def resume_command(self) -> str:
        """The command that goes on with this run."""
        return f"python train.py --resume {shlex.quote(str(self.path))}"


def start_run(config: RunConfig) -> RunFolder:
    """Make the folder of a new run and put its config there.

    Without ``run_dir`` the folder is ``<output_dir>/<data>/<model>_<attention>/seed<seed>``, or the same with
    ``-2``, ``-3`` and so on behind it where earlier runs stand.

    Raises:
        ValueError: ``run_dir`` holds something, and ``overwrite`` is not set or it is no run's folder.
    """
    if getattr(rank_zero_only, "rank", 0) != 0:  # the first process makes the folder; the others learn its name from it
        return RunFolder(config.run_dir or config.output_dir)
    if config.run_dir is None:
        parent = Path(config.output_dir) / config.data["name"] / config.title
        run = _claim_free_folder(parent, f"seed{config.seed}")
    else:
        run = RunFolder(config.run_dir)
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            _clear(run, allowed=config.overwrite)
        run.path.mkdir(parents=True, exist_ok=True)
    write_atomically(run.config, config.to_yaml())
    return run


def _claim_free_folder(parent: Path, name: str) -> RunFolder:
    number = 1
    while True:
        run = RunFolder(parent / (name if number == 1 else f"{name}-{number}"))
        try:
            run.path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return run


def _clear(run: RunFolder, *, allowed: bool) -> None:
    if not run.config.is_file():
        raise ValueError(f"run_dir {run.path} holds something that is no run; choose another folder")
    if not allowed:
        raise ValueError(
            f"run_dir {run.path} holds a run; continue it with --resume {run.path}, choose another folder, "
            "or delete it with --overwrite true"
        )
    shutil.rmtree(run.path)


def run_to_resume(arguments: Sequence[str]) -> str | None:
    """Return the folder behind ``--resume``, or ``None`` for a new run.

    Raises:
        ValueError: Something stands beside ``--resume RUN``: a run goes on as it began.
    """
    parsed = [part for argument in arguments for part in argument.split("=", 1)]
    if "--resume" not in parsed:
        return None
    if len(parsed) != 2 or parsed[0] != "--resume":
        raise ValueError("--resume RUN stands alone: a run goes on with the config it began with")
    return parsed[1]


def resume_run(path: Path | str) -> tuple[RunConfig, RunFolder]:
    """Read the config of a run that was interrupted; the folder may have been moved.

    Raises:
        ValueError: The folder holds no run, or one that is finished.
    """
    run = RunFolder(path)
    if not run.config.is_file():
        raise ValueError(f"{run.path} holds no run: there is no {run.config.name}")
    if run.is_finished:
        raise ValueError(f"the run in {run.path} is finished; its result is in {run.result}")
    content = read_yaml(run.config)
    parser = create_parser(content["model"]["name"], content["data"]["name"])
    return to_run_config(parser.parse_object(content)), run


def create_trainer(config: RunConfig, run: RunFolder) -> Trainer:
    """Build the Lightning trainer of a run: the config's, with our checkpoints, guards and logs.

    Raises:
        ValueError: The trainer refuses a value, or this machine lacks what it asks for.
    """
    try:
        return _create_trainer(config, run)
    except (MisconfigurationException, ModuleNotFoundError) as error:
        raise ValueError(f"trainer: {error}") from error


def _create_trainer(config: RunConfig, run: RunFolder) -> Trainer:
    quiet_lightning()
    keep_freed_memory()
    arguments = instantiate_trainer_arguments(config.trainer)
    callbacks: list[Callback] = [SeedEachStep(config.seed), StopOnNonFiniteLoss()]
    if config.optimization.gates_first_epochs:
        callbacks.append(TrainGatesFirst(config.optimization.gates_first_epochs))
    if config.optimization.ema_decay is not None:
        callbacks.append(create_weight_averaging(config.optimization.ema_decay))
    arguments["enable_progress_bar"] = arguments["enable_progress_bar"] is not False and sys.stdout.isatty()
    if arguments["enable_progress_bar"]:
        callbacks.append(EpochBar())
    callbacks += _as_list(arguments.pop("callbacks"))
    callbacks += [
        StopOnSignal(run.last),
        EpochLog(run.epochs),
        SaveLastAndBest(run.last, run.best, score=find_task(config).score[0]),
    ]
    logger = arguments.pop("logger")
    if logger is None or logger is True:
        logger = TensorBoardLogger(run.path, name="tensorboard", version="")
    plugins = [AtomicCheckpointIO(), *_as_list(arguments.pop("plugins"))]
    return Trainer(
        **arguments,
        callbacks=callbacks,
        logger=logger,
        plugins=plugins,
        enable_checkpointing=True,
        default_root_dir=run.path,
        use_distributed_sampler=False,
    )


def quiet_lightning() -> None:
    """Silence what Lightning says about itself; its warnings about the run stay."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        r".*treespec, LeafSpec.*",  # Lightning's own use of a deprecated torch function
        r".*smaller than the logging interval.*",  # we log once per epoch
        r".*does not have many workers.*",  # images in memory need none
        r".*It is recommended to use `self.log.*sync_dist.*",  # torchmetrics has summed over the processes already
    ):
        warnings.filterwarnings("ignore", message=message)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def command_line() -> str:
    """Return the command that started this program, as a person would type it."""
    program = Path(sys.argv[0]).name
    return shlex.join(["python", *(["-m", "zoo.training"] if program == "__main__.py" else [program]), *sys.argv[1:]])
