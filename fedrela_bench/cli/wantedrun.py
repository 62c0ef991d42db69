"""What `report --run` does: the studies of a report's settings, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedrela_bench.errors import ConfigError, DataError, RunError

if TYPE_CHECKING:
    from fedrela_bench.cli.wanted import Job
    from fedrela_bench.nested import Json
    from fedrela_bench.study.request import TuneRequest
    from fedrela_bench.study.results import StudyResult


@dataclass
class Outcome:
    """How the studies ended."""

    exit_code: int = 0
    interrupted: bool = False
    settings: list[Json] = field(default_factory=list)
    """Name, folder, status, counts and warnings of every setting that was looked at."""


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse to start what cannot be finished here.

    Raises:
        ConfigError: every fault of every setting.
    """
    faults = [f"{job.name}: {fault}" for job in jobs for fault in job.faults]
    if faults and any(not job.faults for job in jobs):
        faults[-1] += "; --setting NAME chooses settings that can be computed"
    if len(faults) == 1 and jobs[0].request is not None:
        raise DataError(faults[0])
    if faults:
        raise ConfigError(faults)


def run_jobs(jobs: Sequence[Job], tell: Callable[[str], None]) -> Outcome:
    """Compute what is missing; a setting that fails does not keep the others from being computed.

    Args:
        jobs: without faults.
        tell: takes lines for people.
    """
    from fedrela_bench.study.runner import tune

    outcome = Outcome()
    for number, job in enumerate(jobs, 1):
        assert job.request is not None, "check_jobs refuses a setting without a request"
        if not job.missing and _tracked(job.request, job):
            outcome.settings.append(_facts(job, "finished"))
            continue
        tell(f"setting {number} of {len(jobs)}, {job.name}: {job.missing} runs missing, {job.cost:.2f} full runs")
        try:
            result = tune(job.request)
        except RunError as error:
            outcome.exit_code = error.exit_code
            outcome.settings.append({**_facts(job, "failed"), "warnings": [str(error)]})
            tell(f"failed: {error}")
            continue
        outcome.settings.append(_facts(job, result.status, result))
        outcome.exit_code = result.exit_code or outcome.exit_code
        tell(_said(result))
        if result.status == "interrupted":
            outcome.interrupted = True
            break
    return outcome


def _tracked(request: TuneRequest, job: Job) -> bool:
    """Whether MLflow has every run of a setting."""
    from fedrela_bench.tracking.manifest import Manifest
    from fedrela_bench.tracking.state import is_complete

    keys = {run.key for arm in job.arms for run in arm.runs}
    listed = {record.key for record in Manifest(request.out).read()[0]}
    return keys <= listed and is_complete(request.out, request.uri)


def _facts(job: Job, status: str, result: StudyResult | None = None) -> Json:
    facts: Json = {"name": job.name, "out": str(job.out), "status": status}
    return facts | {"counts": result.counts if result else {}, "warnings": result.warnings if result else []}


def _said(result: StudyResult) -> str:
    counts = result.counts
    done = f"{counts['trunks_computed']:.0f} baselines and {counts['cells_computed']:.0f} forks computed"
    lines = [f"{result.status}: {done}, {result.seconds:.1f} s", *(f"warning: {text}" for text in result.warnings)]
    return "\n".join(lines)
