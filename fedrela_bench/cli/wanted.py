"""From a report spec to the runs that it needs: one study for each setting, all with one store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrela_bench.config import TrialConfig
from fedrela_bench.defaults import Size, resolve
from fedrela_bench.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from fedrela_bench.reporting.settings import RunsSpec, SettingSpec
    from fedrela_bench.reporting.spec import ReportSpec
    from fedrela_bench.study.plan import Plan
    from fedrela_bench.study.request import TuneRequest
    from fedrela_bench.study.wanted import ArmState

STORE = "store"


@dataclass(frozen=True)
class Ask:
    """What a command line says about the runs of a report."""

    out: Path
    size: Size
    overrides: Mapping[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    seeds: tuple[int, ...] | None = None
    store: Path | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request: data_dir, device, max_concurrent, ..."""


@dataclass
class Job:
    """The runs of one setting, as far as they can be known here."""

    name: str
    dataset: str
    out: Path
    request: TuneRequest | None = None
    plan: Plan | None = None
    arms: list[ArmState] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Why they cannot be computed here."""

    @property
    def missing(self) -> int:
        """Runs that are not finished."""
        return sum(arm.missing for arm in self.arms)

    @property
    def cost(self) -> float:
        """In full runs."""
        return sum(arm.cost for arm in self.arms)


def jobs_of(spec: ReportSpec, name: str, ask: Ask) -> list[Job]:
    """The runs of every setting of a spec and what the store has of them.

    Args:
        spec: with the settings that were chosen.
        name: of the spec, for messages.
        ask: the command line.

    Raises:
        ConfigError: the spec names no runs, or the command line changes what the spec is about.
    """
    if spec.runs is None:
        raise ConfigError(f"{name} names no runs to compute: it shows a study that is there; give --study DIR")
    faults = [*_forced(spec, ask.overrides), *_open_datasets(spec, ask.dataset)]
    if faults:
        raise ConfigError(faults)
    return [_job(spec.runs, setting, name, ask) for setting in spec.settings]


def _forced(spec: ReportSpec, overrides: Mapping[str, Any]) -> Iterator[str]:
    """Overrides of fields by which the report tells its settings and rows apart."""
    told = {name for setting in spec.settings for name in (*setting.filters(), *setting.cpu, *setting.paper)}
    told |= {name for row in spec.rows for name in row.runs} | set(spec.where)
    for name, value in overrides.items():
        if name in told:
            yield f"--{name} {value}: this report sets it in its settings or rows; leave it out, or copy the spec"


def _open_datasets(spec: ReportSpec, dataset: str | None) -> Iterator[str]:
    if dataset is None and any(setting.dataset is None for setting in spec.settings):
        yield "this report leaves the dataset open; give --dataset NAME, such as folder:PATH"


def _job(runs: RunsSpec, setting: SettingSpec, name: str, ask: Ask) -> Job:
    from fedrela_bench.reporting.view import slug

    dataset = str(setting.dataset or ask.dataset)
    job = Job(setting.title, dataset, ask.out / slug(setting.title if setting.dataset else dataset))
    bases: dict[str, TrialConfig] = {}
    for algorithm in runs.algorithms:
        fields = runs.fields(setting, algorithm, ask.size)
        try:
            config = resolve(dataset, algorithm, ask.size, None, ask.overrides, fixed=fields, fixed_by=name).config
            bases[algorithm] = config
        except BenchError as error:
            job.faults += [fault for fault in _faults_of(error) if fault not in job.faults]
    if not job.faults:
        _prepare(job, bases, runs, ask)
    if job.faults and setting.needs is not None:
        job.faults.append(setting.needs)
    return job


def _prepare(job: Job, bases: Mapping[str, TrialConfig], runs: RunsSpec, ask: Ask) -> None:
    """Ask the store what is there; what cannot be known without the data counts as missing."""
    from fedrela_bench.data.names import dataset_name
    from fedrela_bench.study.cluster import pick_device
    from fedrela_bench.study.preflight import make_plan
    from fedrela_bench.study.wanted import arm_states, request_of, without_data

    data = next(iter(bases.values())).data
    settings = {"store": (ask.store or ask.out / STORE), "command": shlex.join(["fedrela-bench", *sys.argv[1:]])}
    job.dataset = dataset_name(data.source, data.profile)
    request = request_of(
        job.name, job.dataset, bases, runs.relabel, ask.seeds or runs.seeds, job.out, **settings, **ask.machine
    )
    job.request = request
    try:
        rooted = request.rooted()
        job.plan = make_plan(rooted, rooted.settled(), pick_device(request)[0])
    except BenchError as error:
        job.faults += _faults_of(error)
        if request.faults():
            return
    job.arms = arm_states(job.plan or without_data(request))


def _faults_of(error: BenchError) -> Sequence[str]:
    return error.faults if isinstance(error, ConfigError) else [str(error)]
