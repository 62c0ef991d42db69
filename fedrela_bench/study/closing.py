"""The end of a study on the screen: the Pareto table, gains with their intervals, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedrela_bench.intervals import CONFIDENCE, INTERVAL_FROM, interval_text
from fedrela_bench.rounds import ROUND_RULE, ROUND_RULES
from fedrela_bench.stacks import Stack, filled, screen, stacked
from fedrela_bench.study.results import PairedGain, Row, StudyResult
from fedrela_bench.study.unpaired import unpaired_lines

DAGGER = "†"
MORE_SEEDS = 5
"""Seeds that are suggested where the result rests on fewer."""


def pareto_lines(result: StudyResult, rows: Sequence[Row]) -> list[str]:
    """Every algorithm's baseline followed by its front, and how to read the numbers.

    Args:
        result: with objectives and seeds.
        rows: to show.
    """
    return ["Pareto front of each algorithm, %", *_table(result, rows, result.seeds)]


def confirmed_lines(result: StudyResult) -> list[str]:
    """What the confirm stage found."""
    seeds = ", ".join(map(str, result.confirm_seeds))
    return [f"confirmed over seeds {seeds}, %", *_table(result, once(result.confirmed), result.confirm_seeds)]


def once(rows: Sequence[Row]) -> list[Row]:
    """The rows, those of the same runs once and under all their names: ``fedavg tau=0.05 (paper default)``."""
    found: dict[object, Row] = {}
    for row in rows:
        key = row.outcome.keys or row.label
        first, name = found.setdefault(key, row), row.label.removeprefix(row.algorithm).strip()
        if name not in first.label:
            found[key] = replace(first, label=f"{first.label} ({name})")
    return list(found.values())


def next_steps(result: StudyResult) -> Iterator[str]:
    """Files and commands: the best configurations, the report, the screens, and more seeds where there are few."""
    if result.status == "interrupted":
        yield from _named({"continue": result.resume_command})
        return
    yield from (f"best {name}: {result.best_command(name)}" for name in result.best)
    if result.report:
        page = next((path for path in result.report if path.endswith(".html")), result.report[0])
        more = len(result.report) - 1
        yield f"report: {page}{f' and {more} more beside it' if more else ''}"
    commands = {} if result.report else {"report": result.report_command}
    commands |= {"MLflow UI": result.ui_command, "Optuna dashboard": result.dashboard_command}
    yield from _named({**commands, **_more_seeds(result), **result.baseline_commands})


def _named(commands: dict[str, str]) -> Iterator[str]:
    yield from (f"{name}: {command}" for name, command in commands.items() if command)


def _more_seeds(result: StudyResult) -> dict[str, str]:
    known = max(len(result.seeds), len(result.confirm_seeds))
    compared = any(row.gains for row in result.pareto)
    if known >= MORE_SEEDS or not compared or not result.resume_command:
        return {}
    wanted = INTERVAL_FROM if known < INTERVAL_FROM else MORE_SEEDS
    options = f"--confirm-seeds {wanted}" + (" --stage confirm,report" if "--stage" in result.resume_command else "")
    why = "for intervals" if known < INTERVAL_FROM else "for narrower ones"
    return {f"confirm on {wanted} seeds ({why})": f"{result.resume_command} {options}"}


def _table(result: StudyResult, rows: Sequence[Row], seeds: Sequence[int]) -> list[str]:
    names = [name.split("/")[-1] for name in result.objectives]
    reported = [f"test/{name}" for name in names if f"test/{name}" not in result.objectives]
    stacks = [_stack(rows, name, place) for place, name in enumerate(result.objectives)]
    stacks += [_stack(rows, name, None) for name in reported]
    width = screen()[0]
    told = [_legend(rows, seeds), *unpaired_lines(rows)]
    return [*stacked([row.label for row in rows], stacks, width), *filled(told, width)]


def _stack(rows: Sequence[Row], metric: str, place: int | None) -> Stack:
    """A metric's values with their gains; `place` is that of an objective."""
    mark = DAGGER if place is not None and metric.startswith("test/") else ""
    return Stack((metric,), tuple(tuple(_lines(row, metric, place, mark)) for row in rows))


def _lines(row: Row, metric: str, place: int | None, mark: str) -> Iterator[str]:
    values, known = row.outcome.values, row.outcome.metrics
    value = values[place] if place is not None else known.get(metric)
    yield "–" if value is None else f"{100 * value:.2f}{mark}"
    gain = row.paired.get(metric)
    if gain is None and place is not None and row.gains:
        gain = PairedGain(row.gains[place], len(row.outcome.keys))
    if gain is not None:
        yield f"Δ {100 * gain.value:+.2f}{mark}"
    if gain is not None and gain.low is not None and gain.high is not None:
        yield interval_text(100 * gain.low, 100 * gain.high)


def _legend(rows: Sequence[Row], seeds: Sequence[int]) -> str:
    listed = ", ".join(map(str, seeds))
    count = f"seed {listed}, n = 1" if len(seeds) == 1 else f"mean over seeds {listed}, n = {len(seeds)}"
    told = f"({count}; {ROUND_RULES[ROUND_RULE]}; test is the reported slice"
    if any(row.gains for row in rows):
        told += "; Δ: gain over the baseline of the same seed"
        told += f" [{CONFIDENCE:.0%} t interval]" if len(seeds) >= INTERVAL_FROM else ""
        told += "" if len(seeds) >= INTERVAL_FROM else f", intervals from {INTERVAL_FROM} seeds on"
    return f"{told})"
