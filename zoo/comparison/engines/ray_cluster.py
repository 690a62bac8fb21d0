"""Runs as tasks of a Ray cluster, whose machines share the file system that the study's folder lies in."""

import dataclasses
import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.engines.local import Monitor, Outcome, RunProcess, check_folders, run_environment, stop
from zoo.comparison.runs import RunPlan

_POLL_SECONDS = 0.2
_STOP_SECONDS = 60.0
_GPU_ACCELERATORS = ("gpu", "cuda")


def run_all(plans: Sequence[RunPlan], *, threads: int = 1, monitor: Monitor | None = None) -> list[Outcome]:
    """Carry out all runs on the cluster, whatever becomes of one of them.

    Ray is started on this machine unless it runs already or ``RAY_ADDRESS`` names a cluster. Each run is a task that
    asks for ``threads`` CPUs, and for a GPU where its config says ``trainer.accelerator: gpu``, or ``auto`` on a
    cluster that has any: Ray hides the GPUs that a task did not ask for. A task whose machine is lost starts again
    elsewhere and goes on from the run's last epoch. When this process is interrupted, the runs save their state and
    end.

    Args:
        plans: In the order in which they are handed to the cluster.
        threads: Of each run, at least 1.
        monitor: Told what happens.

    Returns:
        How each ended, in the order of ``plans``.

    Raises:
        ValueError: Ray is not installed, no machine of the cluster has what a run asks for, or two runs share a folder.
        KeyboardInterrupt: The runs have ended.
    """
    check_folders(plans)
    environment = run_environment(threads)
    ray = connect()
    task = ray.remote(carry_out)
    refs: dict[Any, RunPlan] = {}
    for plan in plans:
        placed = _absolute(plan)
        placed.write_config()  # the task looks for it: a machine that cannot see it does not share the folder
        nodes = ray.nodes()
        resources = {"num_cpus": threads, "num_gpus": int(wants_gpu(plan.config.trainer["accelerator"], nodes))}
        _check_resources(nodes, resources)
        refs[task.options(**resources, name=plan.label).remote(placed, environment)] = plan
    outcomes = _watch(ray, refs, monitor)
    return [outcomes[plan.folder] for plan in plans]


def connect() -> Any:
    """Import Ray and connect to its cluster, or start one on this machine.

    Raises:
        ValueError: Ray is not installed.
    """
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise ValueError("the engine 'ray' needs Ray: pip install 'vision-attention-zoo[ray]'") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray


def num_slots(threads: int) -> int:
    """Return how many runs the cluster computes at a time."""
    return max(1, int(connect().cluster_resources().get("CPU", 1)) // threads)


def wants_gpu(accelerator: str, nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a run asks for a GPU, under Lightning's name of an accelerator and Ray's list of machines.

    >>> wants_gpu("auto", [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}}])
    True
    >>> wants_gpu("auto", [{"Alive": True, "Resources": {"CPU": 4.0}}]), wants_gpu("gpu", []), wants_gpu("cpu", [])
    (False, True, False)
    """
    has_gpu = any(node["Alive"] and node["Resources"].get("GPU", 0) >= 1 for node in nodes)
    return accelerator in _GPU_ACCELERATORS or (accelerator == "auto" and has_gpu)


def carry_out(plan: RunPlan, environment: Mapping[str, str]) -> tuple[int, float]:
    """Carry out one run on the machine that this is called on, as a task.

    Returns:
        Exit status and seconds.

    Raises:
        ValueError: The machine does not see the study's folder.
    """
    if not plan.config_file.is_file():
        raise ValueError(f"{plan.config_file} is not seen by every machine; put the study in a folder that all share")
    process = RunProcess(plan, environment)
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
    finally:  # a cancelled task is interrupted here
        stop([process])
    outcome = process.outcome()
    return outcome.status, outcome.seconds


def _watch(ray: Any, refs: Mapping[Any, RunPlan], monitor: Monitor | None) -> dict[Path, Outcome]:
    outcomes: dict[Path, Outcome] = {}
    sizes = {plan.folder: _log_size(plan) for plan in refs.values()}
    pending, started = list(refs), []
    try:
        while pending:
            done, pending = ray.wait(pending, num_returns=1, timeout=_POLL_SECONDS)
            begun = [ref for ref in [*done, *pending] if _log_size(refs[ref]) != sizes[refs[ref].folder] or ref in done]
            for ref in [ref for ref in begun if ref not in started]:
                started.append(ref)
                if monitor is not None:
                    monitor.started(refs[ref])
            for ref in done:
                outcome = outcomes[refs[ref].folder] = _outcome(ray, ref, refs[ref])
                if monitor is not None:
                    monitor.ended(outcome)
            if monitor is not None:
                monitor.waited([refs[ref] for ref in pending if ref in started])
    finally:
        for ref in pending:
            ray.cancel(ref)
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=_STOP_SECONDS)
    return outcomes


def _outcome(ray: Any, ref: Any, plan: RunPlan) -> Outcome:
    try:
        status, seconds = ray.get(ref)
    except ray.exceptions.RayError as error:
        return Outcome(plan, 1, 0.0, error=str(getattr(error, "cause", None) or error).strip().splitlines()[-1])
    return Outcome(plan, status, seconds)


def _absolute(plan: RunPlan) -> RunPlan:
    """Name the folder as every machine of the cluster finds it."""
    folder = plan.folder.absolute()
    return dataclasses.replace(plan, folder=folder, config=dataclasses.replace(plan.config, run_dir=str(folder)))


def _check_resources(nodes: Sequence[Mapping[str, Any]], resources: Mapping[str, int]) -> None:
    """Raise a ValueError when no machine could ever take the task, which would otherwise wait for ever."""
    asked = {"CPU": resources["num_cpus"], "GPU": resources["num_gpus"]}
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(all(node.get(kind, 0) >= number for kind, number in asked.items()) for node in alive):
        wanted = " and ".join(f"{number} {kind}" for kind, number in asked.items() if number)
        raise ValueError(f"a run asks for {wanted}, which no machine of the Ray cluster has")


def _log_size(plan: RunPlan) -> int:
    return plan.log.stat().st_size if plan.log.exists() else 0
