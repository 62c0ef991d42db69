"""What a study leaves for people: tables, configurations for `run`, and the closing text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedrela_bench.nested import Json
from fedrela_bench.rounds import ROUND_RULE, ROUND_RULES
from fedrela_bench.stacks import filled, screen
from fedrela_bench.study.closing import confirmed_lines, next_steps, once, pareto_lines
from fedrela_bench.study.confirm import CONTROL, DROP
from fedrela_bench.study.controls import difference_lines, difference_table
from fedrela_bench.study.files import write_atomic
from fedrela_bench.study.pairing import Baselines
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.results import Row, StudyResult, better_founded, choose, own_baselines, pareto_front
from fedrela_bench.study.space import ALGORITHM
from fedrela_bench.study.unpaired import unlike_text, unpaired_lines
from fedrela_bench.words import counted


def write_tables(result: StudyResult) -> None:
    """``trials.csv`` (baselines first), ``pareto.csv``; where a confirm stage ran ``confirmed.csv``, and
    ``controls.csv`` where it has controls.
    """
    tables = {"trials.csv": [*result.baselines, *result.trials], "pareto.csv": result.pareto}
    tables |= {"confirmed.csv": result.confirmed} if result.confirmed else {}
    for name, rows in tables.items():
        write_atomic(result.out / name, _csv(rows, result.objectives))
    pairs = difference_table(result.confirmed)
    if len(pairs) > 1:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(pairs)
        write_atomic(result.out / "controls.csv", buffer.getvalue())


def _csv(rows: Sequence[Row], objectives: Sequence[str]) -> str:
    fields = sorted({name for row in rows for name in row.point if name != ALGORITHM})
    metrics = sorted({name for row in rows for name in row.outcome.metrics if name not in objectives})
    spread = sorted({name for row in rows for name in row.outcome.std})
    unpaired = ["baseline differs"] if any(row.unlike for row in rows) else []
    header = ["trial", "algorithm", *fields, "status", *objectives, *(f"gain {name}" for name in objectives), *unpaired]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*header, *metrics, *(f"std {name}" for name in spread), "seeds", "keys", "error"])
    for row in rows:
        outcome = row.outcome
        start = [
            ("baseline" if not row.point else row.label) if row.number is None else row.number,
            row.algorithm,
            *(row.point.get(f, "") for f in fields),
        ]
        numbers = [
            *outcome.values,
            *(row.gains or [""] * len(objectives)),
            *(unlike_text(row.unlike) for _ in unpaired),
            *(outcome.metrics.get(m, "") for m in metrics),
        ]
        end = [*(outcome.std.get(m, "") for m in spread), len(outcome.keys), " ".join(outcome.keys), outcome.error]
        writer.writerow([*start, outcome.status, *numbers, *end])
    return buffer.getvalue()


def write_best(plan: Plan, result: StudyResult, best: Mapping[str, Row]) -> dict[str, Path]:
    """One configuration file for each of the rows to recommend; `run --config` repeats the first seed's trial."""
    from fedrela_bench.yaml_io import dump_yaml

    paths, behind = {}, _behind(plan, result)
    for name, row in best.items():
        config = plan.config(row.point, plan.seeds[0])
        header = _header(name, row, behind, plan.seeds[0], _own_metrics(plan, row))
        path = result.out / "best" / f"{name}.yaml"
        write_atomic(path, header + dump_yaml(config.model_dump(mode="json")))
        paths[name] = path
    return paths


def _behind(plan: Plan, result: StudyResult) -> StudyResult:
    """The result with the seeds and baselines that what is recommended rests on."""
    if plan.request.base_only or not better_founded(plan, result.confirmed, result.confirm_seeds):
        return result
    known = {name: plan.baseline(name, result.confirm_seeds) for name in plan.bases}
    rows = [Row(f"{name} (baseline)", name, {}, outcome) for name, outcome in known.items() if outcome is not None]
    rows += own_baselines(result.confirmed, Baselines(plan, result.confirm_seeds))
    return replace(result, seeds=result.confirm_seeds, baselines=rows)


def _own_metrics(plan: Plan, row: Row) -> Mapping[str, float]:
    entry = plan.entry(row.point, plan.seeds[0])
    found = plan.runtime.store.result(entry.kind, entry.key)
    return {} if found is None else dict(found["final"])


def _header(name: str, row: Row, result: StudyResult, seed: int, own: Mapping[str, float]) -> str:
    """What the file is, what it reached beside its baseline, and the numbers that a run of it (one seed) repeats."""
    rule = f"mean over {counted(len(result.seeds), 'seed')} of the {ROUND_RULES[ROUND_RULE]}"
    lines = [
        result.best_command(name),
        f"{'Balanced choice' if name == 'balanced' else f'Best {name}'} of the study on {result.dataset}: {row.label}",
        f"{_percent(result.objectives, row.outcome.values)} ({rule})",
    ]
    if row.gains:
        gains = ", ".join(f"{100 * gain:+.2f}" for gain in row.gains)
        lines.append(f"its baseline: {_percent(result.objectives, row.base)} (gain {gains})")
    lines += unpaired_lines([row])
    lines += [f"note: {text}" for text in _not_better(name, row, result)]
    repeated = {metric: value for metric, value in own.items() if metric.startswith("test/")}
    lines.append(f"This file is trial {row.number} with seed {seed}, which reached ({ROUND_RULES[ROUND_RULE]}):")
    lines.append(_percent(list(repeated), list(repeated.values())))
    return "".join(f"# {line}\n" for line in lines)


def _percent(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} {100 * value:.2f} %" for name, value in zip(names, values, strict=True))


def _not_better(name: str, row: Row, result: StudyResult) -> list[str]:
    """A remark where the best setting of an objective is worse than doing nothing."""
    names = [objective.split("/")[-1] for objective in result.objectives]
    if name not in names or not result.baselines:
        return []
    index = names.index(name)
    best = max(result.baselines, key=lambda other: other.outcome.values[index])
    if row.outcome.values[index] > best.outcome.values[index]:
        return []
    value = f"{100 * best.outcome.values[index]:.2f} %"
    return [f"no setting beats {best.label} in {result.objectives[index]} ({value}); this is the best relabelled one"]


def render_text(result: StudyResult) -> str:
    """The closing text: Pareto table against the baseline, files and commands."""
    width = screen()[0]
    lines = [*filled([_headline(result)], width), ""]
    shown = shown_rows(result)
    lines += pareto_lines(result, shown) if shown else ["nothing finished yet"]
    lines += _confirmed(result)
    lines += ["", *filled(_remarks(result), width)]
    return "\n".join([*lines, *next_steps(result)]) + "\n"


def _headline(result: StudyResult) -> str:
    counts = result.counts
    done = counted(len(result.trials) - len(result.failed), "trial")
    if result.status == "finished" and not counts.get("cells_computed") and not counts.get("trunks_computed"):
        return f"Study on {result.dataset} was finished already: {done}, nothing to compute, {result.seconds:.1f} s"
    if not counts.get("full_runs"):
        return f"Study on {result.dataset} {result.status}: {done}, {result.seconds:.1f} s"
    cost = f"{counts['full_runs']:.2f} full runs instead of {counts.get('full_runs_unshared', 0):.0f}"
    if counts.get("full_runs", 0) < counts.get("full_runs_trunks_only", 0) - 0.005:
        cost += f" ({counts['full_runs_trunks_only']:.2f} if only baselines were shared)"
    how = f"{counted(counts.get('cells_computed', 0), 'cell')} computed, {counts.get('cells_reused', 0):.0f} reused"
    return f"Study on {result.dataset} {result.status}: {done}, {how}, {cost}, {result.seconds:.1f} s"


def _confirmed(result: StudyResult) -> list[str]:
    """What the confirm stage found, where it rests on more than the search does or adds to it."""
    if not _added(result):
        return []
    told = [*_told_apart(result), *difference_lines(result.confirmed, result.objectives)]
    return ["", *confirmed_lines(result), *filled(told, screen()[0])]


def _added(result: StudyResult) -> bool:
    """Whether the confirm stage has runs that the table before it does not show."""
    known = {row.outcome.keys for row in _front(result)}
    return any(row.outcome.keys not in known for row in result.confirmed)


def _told_apart(result: StudyResult) -> list[str]:
    """What relabelling adds where the learning rate drops in both arms."""
    by_role = {(row.role, row.algorithm): row.outcome for row in result.confirmed if row.outcome.valid}
    lines = []
    for algorithm in dict.fromkeys(row.algorithm for row in result.confirmed):
        control, both = by_role.get((CONTROL, algorithm)), by_role.get((DROP, algorithm))
        if control is not None and both is not None:
            pairs = zip(result.objectives, both.values, control.values, strict=True)
            gains = ", ".join(f"{name} {100 * (value - other):+.2f}" for name, value, other in pairs)
            lines.append(f"{algorithm}: with the lower rate in both, relabelling adds {gains} (default - control)")
    return lines


def shown_rows(result: StudyResult) -> list[Row]:
    """`_front`, under the names of the confirm stage, too, where that adds no runs."""
    rows = _front(result)
    return rows if not rows or _added(result) else once([*rows, *result.confirmed])


def _front(result: StudyResult) -> list[Row]:
    """Every algorithm's baseline followed by its own front."""
    algorithms = dict.fromkeys(row.algorithm for row in (*result.baselines, *result.trials))
    rows: list[Row] = []
    for algorithm in algorithms:
        rows += [row for row in result.baselines if row.algorithm == algorithm]
        rows += pareto_front([row for row in result.trials if row.algorithm == algorithm])
    return rows


def _remarks(result: StudyResult) -> list[str]:
    oracle = any(name.startswith("test/") for name in result.objectives)
    remarks = ["† oracle: the reported test images also chose the configuration"] if oracle else []
    flagged = [row for row in result.trials if row.outcome.status in ("diverged", "invalid")]
    futile = [row for row in result.trials if row.outcome.status == "futile"]
    front = pareto_front(result.trials)
    for name, row in choose(front, [objective.split("/")[-1] for objective in result.objectives]).items():
        remarks += _not_better(name, row, result)
    remarks += [f"{row.outcome.status}: trial {row.number} ({row.label}) counts as worst" for row in flagged]
    remarks += [f"stopped: trial {row.number} ({row.label}): {row.outcome.error}" for row in futile]
    remarks += [f"failed: trial {row.number} ({row.label}): {row.outcome.error}" for row in result.failed]
    return [*remarks, *(f"warning: {text}" for text in result.warnings)]


def counts_of(
    plan: Plan, result: StudyResult, computed: Mapping[str, int], confirmed: Sequence[tuple[Json, int]] = ()
) -> Json:
    """What was computed and what it cost, in rounds of one full run.

    Args:
        plan: of the study.
        result: with its baselines and trials.
        computed: counts of this call, which are passed on.
        confirmed: points and seeds that the confirm stage finished, first heats included.
    """
    rounds = max(base.federation.rounds for base in plan.bases.values())
    shared = {trunk.entry.key: 0 for trunk in plan.trunks()}
    shared |= dict.fromkeys((key for row in result.baselines if not row.point for key in row.outcome.keys), rounds)
    finished = [trunk.entry for trunk in (plan.trunks(result.confirm_seeds, ()) if result.confirm_seeds else ())]
    shared |= {entry.key: rounds for entry in finished if (entry.folder / "result.json").exists()}
    alone = dict(shared)
    runs_of = [(row.point, seed) for row in result.trials if row.outcome.keys for seed in plan.seeds]
    runs_of += confirmed
    for point, seed in runs_of:
        lineage = plan.lineage(point, seed)
        if lineage:
            for part in lineage:
                shared[part.entry.key] = max(shared.get(part.entry.key, 0), part.last - part.first + 1)
            alone.setdefault(lineage[-1].entry.key, rounds - lineage[0].last if lineage[1:] else rounds)
    ended = [row.point for row in result.trials if row.outcome.status == "futile"]
    for point, seed in ((point, seed) for point in ended for seed in plan.seeds):
        lineage = plan.lineage(point, seed)
        own = lineage[-1]
        done = len(own.entry.journal.rounds(own.first))
        if own.entry.config() is None or own.entry.key in shared:
            continue
        for part in lineage[:-1]:
            shared[part.entry.key] = max(shared.get(part.entry.key, 0), part.last - part.first + 1)
        shared[own.entry.key], alone[own.entry.key] = done, own.first - 1 + done - lineage[0].last
    runs = sum(count > 0 for count in alone.values())
    costs = {"full_runs": sum(shared.values()) / rounds, "full_runs_trunks_only": sum(alone.values()) / rounds}
    return {**computed, **costs, "full_runs_unshared": float(runs)}
