"""``zoo compare``: train a grid of models and attention mechanisms, and say what may be believed of it."""

import argparse
import shlex
import signal
import sys
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
    running.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, 1 by default")
    running.add_argument("--folder", help="of the runs and the report, runs/studies/NAME by default")
    running.add_argument("--output", metavar="FILE", help="the results file, NAME.parquet in the folder by default")
    running.add_argument("--dry-run", action="store_true", help="print a shell command per missing run, and stop")


def run(arguments: argparse.Namespace) -> int:
    """Run the study, or report a results file again; the status is 1 when a run failed."""
    if arguments.file is not None and arguments.file.endswith(RESULTS_SUFFIX):
        from zoo.comparison.results import read_results

        refuse_beside(arguments, "results are reported as they are", ["folder"])
        path = Path(arguments.file)
        return report(read_results(path), Path(arguments.folder or path.with_name(f"{path.stem}_report")))
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
        refuse_beside(arguments, "a study file says all of the study", ["folder", "output", "jobs", "dry_run"])
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


def refuse_beside(arguments: argparse.Namespace, reason: str, allowed: list[str]) -> None:
    """Raise a ValueError when an option is given that would have no effect beside the file."""
    defaults = {"jobs": 1, "dry_run": False, "run_options": []}
    known = ("models", "attention", "data", "seeds", "name", "config", "jobs", "output", "dry_run", "run_options")
    for name in known:
        value = getattr(arguments, name)
        if name not in allowed and value != defaults.get(name):
            option = value[0] if name == "run_options" else f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} has no effect beside {arguments.file}: {reason}")


def run_study(study: "Study", plans: "list[RunPlan]", folder: Path, arguments: argparse.Namespace) -> int:
    """Do what is missing of a study, write its results, and report them."""
    from zoo.comparison.collection import collect, read_data
    from zoo.comparison.results import write_results

    data = read_data(plans)
    missing = announce(study, plans, data)
    if arguments.dry_run:
        return print_commands(missing)
    failed = carry_out(plans, missing, arguments)
    results = collect(study.name, [plan for plan in plans if plan not in failed], data)
    output = Path(arguments.output or folder / f"{study.name}{RESULTS_SUFFIX}")
    write_results(results, output)
    print(f"Results: {output}")
    status = report(results, folder / "report")
    return 1 if failed else status


def announce(study: "Study", plans: "list[RunPlan]", data: "StudyData") -> "list[RunPlan]":
    """Say what stands and what is left to do, and return the latter."""
    from zoo.comparison.runs import Digests, assess
    from zoo.provenance import code_digest

    code = code_digest()
    standings = [(plan, assess(plan, Digests(code, data.digest(plan)))) for plan in plans]
    counts = {
        status: sum(standing.status == status for _, standing in standings) for status in ("finished", "unfinished")
    }
    missing = [plan for plan, standing in standings if standing.status != "finished"]
    sys.stderr.write(
        f"Study {study.name}: {len(plans)} runs, {counts['finished']} finished, {counts['unfinished']} to go on with\n"
    )
    for plan, standing in standings:
        if standing.status == "different":
            sys.stderr.write(f"{plan.label}: {plan.folder} is not reused and will be moved aside: {standing.reason}\n")
    return missing


def print_commands(missing: "list[RunPlan]") -> int:
    """Write the config of every missing run, and print the commands that carry them out, one a line."""
    from zoo.comparison.engines.commands import shell_command

    for plan in missing:
        plan.write_config()
        print(shell_command(plan))
    return 0


def carry_out(plans: "list[RunPlan]", missing: "list[RunPlan]", arguments: argparse.Namespace) -> "list[RunPlan]":
    """Run what is missing and return what failed."""
    from zoo.comparison.engines import local
    from zoo.comparison.progress import GridProgress

    with GridProgress(plans, arguments.jobs) as progress:
        outcomes = local.run_all(missing, arguments.jobs, monitor=progress)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        sys.stderr.write(f"{len(failed)} of {len(plans)} runs failed:\n")
    for outcome in failed:
        sys.stderr.write(f"  {outcome.plan.label}: {outcome.message}\n    {outcome.plan.log}\n")
    return [outcome.plan for outcome in failed]


def report(results: "StudyResults", folder: Path) -> int:
    """Print the tables and write the pages."""
    from zoo.comparison.page import write_report
    from zoo.comparison.summary import summarize
    from zoo.comparison.tables import print_summary

    summary: Any = summarize(results)
    print_summary(summary)
    for path in write_report(results, summary, folder):
        print(path)
    return 0
