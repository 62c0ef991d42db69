"""``study.json``: what makes a study this study, so that its command can be repeated and another one is refused."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedrela_bench import __version__, leases
from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.nested import Json, canonical_json
from fedrela_bench.neutral import deciding, with_neutral, without_neutral
from fedrela_bench.plugins import code_of
from fedrela_bench.plugins import facts as plugin_facts
from fedrela_bench.rounds import ROUND_RULE
from fedrela_bench.study.files import write_atomic
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.store import name_study
from fedrela_bench.tracking.payload import flatten

LOCK = ".lock"
MOST_SHOWN = 10
"""Differences listed one by one."""
PACKAGES = ("torch", "ray", "optuna", "mlflow", "numpy")


@contextmanager
def study_lock(out: Path) -> Iterator[None]:
    """The only right to drive a study; a dead driver's right is free.

    Raises:
        StoreError: another living process drives it; the message says which.
    """
    with leases.hold(out / LOCK, until=lambda: True) as held:
        if not held:
            owner = leases.holder(out / LOCK)
            who = owner.text() if owner is not None else "another process"
            raise StoreError(f"{who} runs the study in {out}; wait for it or choose another --out")
        yield


def identity(plan: Plan) -> Json:
    """Everything that makes results of one study comparable; budgets, paths and names are not in it."""
    code = _code(plan)
    return {
        **({"plugins": code} if code else {}),
        "space": plan.request.space.identity(),
        "bases": {name: _base(config) for name, config in sorted(plan.bases.items())},
        "seeds": list(plan.seeds),
        "objectives": list(plan.request.objectives),
        "data": {f"{algorithm}/{seed}": value for (algorithm, seed), value in _digests(plan)},
        "numerics": dict(plan.runtime.fingerprint(next(iter(plan.bases.values())), "").numerics),
        "simulation_version": plan.runtime.engine.version,
    }


def _code(plan: Plan) -> Json:
    """Digests of the plugins that a study uses, by the name it uses."""
    values = [plan.request.space.identity(), *(config.model_dump(mode="json") for config in plan.bases.values())]
    named = {name for name, _ in plan.runtime.code if code_of(((name, "used"),), values)}
    return {name: sorted(digest for other, digest in plan.runtime.code if other == name) for name in sorted(named)}


def _digests(plan: Plan) -> list[tuple[tuple[str, int], str]]:
    """Of the search; later stages may have more seeds without being another study."""
    return [(name, value) for name, value in sorted(plan.digests.items()) if name[1] in plan.seeds]


def _base(config: TrialConfig) -> Json:
    values = deciding(config)
    del values["seed"]
    values["data"]["source"] = config.data.source.partition(":")[0]
    return values


def check_identity(plan: Plan) -> None:
    """Refuse a folder that holds another study.

    Raises:
        ConfigError: the differences are listed.
    """
    path = plan.request.out / "study.json"
    current, new = _read(path), identity(plan)
    if current and canonical_json(_known(current["identity"])) != canonical_json(new):
        known = _race_fault(current, plan) or _code_fault(current, plan)
        raise ConfigError(known or _differences(current["identity"], new, path.parent))


def _known(recorded: Json) -> Json:
    """An identity as `identity` would write it now, whatever version wrote it."""
    return _with_bases(recorded, without_neutral)


def _with_bases(recorded: Json, change: Callable[[type[TrialConfig], Json], Json]) -> Json:
    return {**recorded, "bases": {name: change(TrialConfig, base) for name, base in recorded["bases"].items()}}


def register(plan: Plan) -> Json:
    """Write or check ``study.json``.

    Raises:
        ConfigError: the folder holds another study.
    """
    path = plan.request.out / "study.json"
    check_identity(plan)
    current, new = _read(path), identity(plan)
    made = {"study": current.get("study") or uuid.uuid4().hex[:12], "created": current.get("created") or time.time()}
    values = {**made, **_facts(plan, str(made["study"])), "identity": new}
    _write(path, values)
    name_study(plan.request.store_dir, str(made["study"]), plan.request.out)
    return values


def update(out: Path, **changes: Any) -> None:
    """Change facts of ``study.json`` that are not its identity."""
    path = out / "study.json"
    _write(path, {**_read(path), **changes})


def summarise(out: Path, summary: Mapping[str, float]) -> None:
    """Note a study's own numbers and when they were first found, by which `sync` can log them once."""
    if _read(out / "study.json").get("summary") != dict(summary):
        update(out, summary=dict(summary), summarised=time.time())


def _facts(plan: Plan, study: str) -> Json:
    request = plan.request
    base, plugins = next(iter(plan.bases.values())), plugin_facts(request.plugins)
    facts: Json = {
        "dataset": request.dataset,
        "experiment": f"fedrela-bench/{request.dataset}",
        "tracking_uri": request.uri,
        "store": str(request.store_dir),
        "selection": base.evaluation.selection,
        "round_rule": ROUND_RULE,
        "device": plan.runtime.device_class,
        "data_notes": list(plan.data_notes),
        "sampler": request.sampler,
        "stages": list(request.stages),
        "race": request.race,
        "trials": request.target,
        "log_models": request.log_models,
        "datasets": dict(plan.datasets),
        "command": request.resume_command,
        **({"plugins": plugins} if plugins else {}),
        "versions": {"fedrela_bench": __version__, **{name: version(name) for name in PACKAGES}},
    }
    parent = {name: str(facts[name]) for name in ("dataset", "selection", "round_rule", "device", "sampler")}
    parent |= {"objectives": ",".join(request.objectives), "seeds": ",".join(map(str, plan.seeds))}
    parent["data_digest"] = ",".join(sorted(set(plan.digests.values())))
    return {**facts, "parent_tags": {**parent, "study": study}}


def _read(path: Path) -> Json:
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        _known(values["identity"]), values["study"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); move it away and repeat the command to keep the store"
        ) from error
    return dict(values)


def _write(path: Path, values: Json) -> None:
    write_atomic(path, json.dumps(values, indent=1, allow_nan=False) + "\n")


def _race_fault(current: Mapping[str, Any], plan: Plan) -> list[str]:
    """What to say where a race is continued as a plain study, or the reverse; [] where that is not all that differs."""
    began, old, new = current.get("race"), _known(current["identity"]), identity(plan)
    seeds = ("seeds", "data")
    if began in (None, plan.request.race) or any(old.get(name) != new[name] for name in new if name not in seeds):
        return []
    how, remedy = ("with --race", "add --race") if began else ("without --race", "leave --race out")
    return [
        f"the study in {plan.request.out} was begun {how}, so that its search has seeds {old['seeds']} and not "
        f"{new['seeds']}; {remedy}, as in its command `{current['command']}`, or choose another --out"
    ]


def _code_fault(current: Mapping[str, Any], plan: Plan) -> list[str]:
    """What to say where only code of the user's own has changed; [] where that is not all."""
    old, new = _known(current["identity"]), identity(plan)
    before, after = old.get("plugins", {}), new.get("plugins", {})
    if before.keys() != after.keys() or any(old.get(name) != new[name] for name in new if name != "plugins"):
        return []
    changed = ", ".join(name for name in after if before[name] != after[name])
    return [
        f"the code of {changed} is not what the study in {plan.request.out} was begun with, so that new runs could not "
        "be compared with those that are there; choose another --out, or bring the old code back (runs that do not use "
        "it are shared through --store)"
    ]


def _differences(old: Json, new: Json, out: Path) -> list[str]:
    before, after = (dict(flatten(_with_bases(found, with_neutral))) for found in (old, new))
    names = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    causes = [name for name in names if not name.startswith("data.")]
    names = causes or names
    shown = [f"{name} was {before.get(name)!r} and is {after.get(name)!r}" for name in names]
    remedy = f"choose another --out, or repeat the command of {out / 'study.json'}"
    if len(shown) > MOST_SHOWN:
        shown = [*shown[:MOST_SHOWN], f"{len(shown) - MOST_SHOWN} more settings differ"]
    return [f"the study in {out} is another one: {line}" for line in shown[:-1]] + [
        f"the study in {out} is another one: {shown[-1]}; {remedy} (cells that both need are shared through --store)"
    ]
