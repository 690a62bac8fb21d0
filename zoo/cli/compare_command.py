"""``zoo compare``: train a grid of models and attention mechanisms, and say what may be believed of it.

As a SLURM job array, in the folder where the study was planned:

    zoo compare STUDY.yaml --dry-run > commands.txt
    sbatch --array=1-$(wc -l < commands.txt) --wrap 'eval "$(sed -n ${SLURM_ARRAY_TASK_ID}p commands.txt)"'
    zoo compare STUDY.yaml --finished-only       # the table so far, at any time
    zoo compare STUDY.yaml
"""

import argparse
import dataclasses
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.comparison.collection import StudyData
    from zoo.comparison.results import StudyResults
    from zoo.comparison.runs import RunPlan
    from zoo.comparison.study import Study

SUMMARY = "Compare attention mechanisms on equal terms: a grid of runs, statistics, tables, a page."
TAKES_RUN_OPTIONS = True
RESULTS_SUFFIX = ".parquet"
INTERRUPTED = 130
GRID = ("models", "attention", "data", "seeds", "name", "config", "run_options")
RUNNING = (
    *("engine", "jobs", "threads", "folder", "output", "cost_rounds", "dry_run", "finished_only", "weights_dir"),
    "reuse",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "Any option of train.py that has a dot in its name, such as --trainer.max_epochs 5, is shared by all runs. "
        "The same command goes on where an earlier one was stopped."
    )
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="a study (.yaml) to run, or results (.parquet) to report again"
    )
    grid = parser.add_argument_group("a study without a file; A is NAME or 'NAME(option=value, ...)'")
    grid.add_argument("--models", metavar="A,B", help="models")
    grid.add_argument("--attention", metavar="none,A,B", help="attention mechanisms, and none for the plain net")
    grid.add_argument("--data", metavar="A", help="data set, or several with the same test labels")
    grid.add_argument("--seeds", metavar="N", help="a count of seeds from 0 on, or several seeds: 3,4,5; default 3")
    grid.add_argument("--name", help="of the study, by default made of data and models")
    grid.add_argument("--config", metavar="FILE", help="a run's config whose recipe is shared")
    running = parser.add_argument_group("running")
    running.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    running.add_argument("--jobs", type=int, metavar="N", help="runs at a time on this machine, 1 by default")
    running.add_argument("--threads", type=int, metavar="N", help="of each run; cores / jobs by default, 1 with ray")
    running.add_argument("--folder", help="of the runs and the report, runs/studies/NAME by default")
    running.add_argument("--output", metavar="FILE", help="the results file, NAME.parquet in the folder by default")
    running.add_argument(
        "--reuse",
        metavar="FILE",
        help="results of a part of the study, whose runs count as done where config, code and data are the same",
    )
    running.add_argument(
        "--cost-rounds",
        type=int,
        metavar="N",
        help="in which latency and training rate are measured, 7 by default, or 0",
    )
    running.add_argument(
        "--weights-dir",
        metavar="DIR",
        help="receives weights and card of each net's best seed on held-out images, of the runs in the folder",
    )
    running.add_argument("--dry-run", action="store_true", help="print a shell command per missing run, and stop")
    running.add_argument(
        "--finished-only", action="store_true", help="train nothing: write and report the runs that are finished"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the study, or report a results file again; the status is 1 when a run failed."""
    if arguments.file is not None and arguments.file.endswith(RESULTS_SUFFIX):
        from zoo.comparison.results import read_results

        refuse_beside(arguments, "results are reported as they are", ["folder"])
        path = Path(arguments.file)
        report(read_results(path), Path(arguments.folder or path.with_name(f"{path.stem}_report")))
        return 0
    study = choose_study(arguments)
    folder = Path(arguments.folder or Path("runs") / "studies" / study.name)
    plans = study.plans(folder)
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_study(study, plans, folder, arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nStopped, and nothing is lost. Go on with\n  {shlex.join(['zoo', *arguments.words])}\n")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)


def choose_study(arguments: argparse.Namespace) -> "Study":
    """Read the study file, or build a study from the options.

    Raises:
        ValueError: Both are given, or something is missing.
    """
    from zoo.comparison.study import read_study, study_from_options

    if arguments.file is not None:
        refuse_beside(arguments, "a study file says all of the study", [*RUNNING])
        return read_study(arguments.file)
    missing = [f"--{name}" for name in ("models", "attention", "data") if getattr(arguments, name) is None]
    if missing:
        raise ValueError(f"zoo compare needs a study file, or {' and '.join(missing)}")
    return study_from_options(
        models=arguments.models,
        attention=arguments.attention,
        data=arguments.data,
        seeds=arguments.seeds or "3",
        name=arguments.name,
        base=arguments.config,
        options=arguments.run_options,
    )


def refuse_beside(arguments: argparse.Namespace, reason: str, allowed: Sequence[str]) -> None:
    """Raise a ValueError when an option is given that would have no effect beside the file."""
    for name in (*GRID, *RUNNING):
        value = getattr(arguments, name)
        if name not in allowed and value not in (None, False, [], "local"):
            option = value[0] if name == "run_options" else f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} has no effect beside {arguments.file}: {reason}")


def run_study(study: "Study", plans: "list[RunPlan]", folder: Path, arguments: argparse.Namespace) -> int:
    """Do what is missing of a study, write its results, and report them."""
    from zoo.comparison.collection import collect, read_data
    from zoo.comparison.results import write_results
    from zoo.comparison.reuse import has_row

    check_running(arguments)
    data = read_data(plans)
    earlier = read_reusable(plans, data, arguments.reuse)
    here = plans if earlier is None else [plan for plan in plans if not has_row(earlier, plan)]
    missing = announce(study, here, data, len(plans) - len(here))
    if arguments.dry_run:
        return print_commands(missing, arguments.threads)
    if arguments.finished_only:
        failed, reached = [], [plan for plan in plans if plan not in missing]
    else:
        failed = carry_out(here, missing, arguments) if missing else []
        reached = [plan for plan in plans if plan not in failed]
    if not reached:
        sys.stderr.write(f"No run of study {study.name} is finished: there is nothing to report\n")
        return 1
    output = Path(arguments.output or folder / f"{study.name}{RESULTS_SUFFIX}")
    results = collect(study.name, reached, data, earlier=earlier, planned=plans)
    write_results(results, output)  # before the cost, which not every machine can measure
    results = dataclasses.replace(results, cost=measure(plans, data, folder, arguments))
    write_results(results, output)
    print(f"Results: {output}")
    report(results, folder / "report")
    if arguments.weights_dir is not None:
        from zoo.comparison.publishing import publish_weights

        for card in publish_weights(reached, arguments.weights_dir):
            print(card)
    return int(bool(failed))


def check_running(arguments: argparse.Namespace) -> None:
    """Raise a ValueError for options of running that contradict each other or are out of range."""
    for name, least in (("jobs", 1), ("threads", 1), ("cost_rounds", 0)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} ({value}) must be at least {least}")
    if arguments.engine == "ray" and arguments.jobs is not None:
        raise ValueError(
            "--jobs has no effect with --engine ray, whose cluster decides; --threads says what a run takes"
        )
    if arguments.output is not None and not arguments.output.endswith(RESULTS_SUFFIX):
        raise ValueError(f"--output {arguments.output} must end in {RESULTS_SUFFIX}")
    idle = ("jobs", "output", "cost_rounds", "weights_dir")
    given = [f"--{name}" for name in idle if getattr(arguments, name) is not None]
    if arguments.dry_run and (given or arguments.engine != "local"):
        raise ValueError(
            f"{(given or ['--engine'])[0].replace('_', '-')} has no effect with --dry-run, which runs nothing"
        )
    if arguments.finished_only and (arguments.dry_run or arguments.jobs or arguments.engine != "local"):
        option = "--dry-run" if arguments.dry_run else "--jobs" if arguments.jobs else "--engine"
        raise ValueError(f"{option} has no effect with --finished-only, which trains nothing")


def read_reusable(plans: "list[RunPlan]", data: "StudyData", file: str | None) -> "StudyResults | None":
    """Read the rows of a results file that stand for runs of the study, and say how many there are."""
    from zoo.comparison.results import read_results
    from zoo.comparison.reuse import select_reusable
    from zoo.provenance import code_digest

    if file is None:
        return None
    results = read_results(file)
    earlier = select_reusable(results, plans, data, code_digest())
    sys.stderr.write(f"{file}: {len(earlier.runs)} of its {len(results.runs)} runs count as done\n")
    return earlier


def announce(study: "Study", plans: "list[RunPlan]", data: "StudyData", num_reused: int) -> "list[RunPlan]":
    """Say what stands and what is left to do, and return the latter; ``num_reused`` runs are none of the plans."""
    from zoo.comparison.runs import Digests, assess
    from zoo.provenance import code_digest

    code = code_digest()
    standings = [(plan, assess(plan, Digests(code, data.digest(plan)))) for plan in plans]
    finished, unfinished = (
        sum(standing.status == status for _, standing in standings) for status in ("finished", "unfinished")
    )
    finished, total = finished + num_reused, len(plans) + num_reused
    sys.stderr.write(f"Study {study.name}: {total} runs, {finished} finished, {unfinished} to go on with\n")
    for plan, standing in standings:
        if standing.status == "different":
            sys.stderr.write(f"{plan.label}: {plan.folder} is not reused and will be moved aside: {standing.reason}\n")
    return [plan for plan, standing in standings if standing.status != "finished"]


def print_commands(missing: "list[RunPlan]", threads: int | None) -> int:
    """Write the config of every missing run, and print the commands that carry them out, one a line."""
    from zoo.comparison.engines.commands import shell_command

    for plan in missing:
        plan.write_config()
        print(shell_command(plan, threads=threads))
    return 0


def carry_out(plans: "list[RunPlan]", missing: "list[RunPlan]", arguments: argparse.Namespace) -> "list[RunPlan]":
    """Run what is missing and return what failed."""
    from zoo.comparison.engines import local, ray_cluster
    from zoo.comparison.progress import GridProgress

    if arguments.engine == "ray":
        threads = arguments.threads or 1
        with GridProgress(plans, ray_cluster.num_slots(threads)) as progress:
            outcomes = ray_cluster.run_all(missing, threads=threads, monitor=progress)
    else:
        jobs = arguments.jobs or 1
        with GridProgress(plans, jobs) as progress:
            outcomes = local.run_all(missing, jobs, threads=arguments.threads, monitor=progress)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        sys.stderr.write(f"{len(failed)} of {len(plans)} runs failed:\n")
    for outcome in failed:
        sys.stderr.write(f"  {outcome.plan.label}: {outcome.message}\n    {outcome.plan.log}\n")
    return [outcome.plan for outcome in failed]


def measure(plans: "list[RunPlan]", data: "StudyData", folder: Path, arguments: argparse.Namespace) -> Any:
    """Return the table of cost, measured on this machine with the threads that one run alone would have.

    With ``--finished-only`` runs may be going on beside, so that the cost is only measured where rounds are asked for.
    """
    from zoo.comparison.cost import DEFAULT_ROUNDS, load_cost, load_or_measure_cost
    from zoo.comparison.engines.local import shared_threads
    from zoo.comparison.results import empty_cost

    rounds = DEFAULT_ROUNDS if arguments.cost_rounds is None else arguments.cost_rounds
    if rounds == 0:
        return empty_cost()
    threads, path = arguments.threads or shared_threads(1), folder / "cost.json"
    if arguments.finished_only and arguments.cost_rounds is None:
        return load_cost(plans, data.shapes, path, threads=threads, rounds=rounds)
    try:
        return load_or_measure_cost(plans, data.shapes, path, threads=threads, rounds=rounds)
    except RuntimeError as error:
        sys.stderr.write(f"The cost is left out, for it could not be measured here: {error}\n")
        return empty_cost()


def report(results: "StudyResults", folder: Path) -> None:
    """Print the tables and write the pages."""
    from zoo.comparison.page import write_report
    from zoo.comparison.summary import summarize
    from zoo.comparison.tables import print_summary

    summary = summarize(results)
    print_summary(summary)
    for path in write_report(results, summary, folder):
        print(path)
