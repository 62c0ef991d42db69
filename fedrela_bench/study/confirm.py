"""The confirm stage: the best configurations and fixed arms, the paper's default among them, on all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrela_bench.choice import RELABELER
from fedrela_bench.config import PUBLISHED, TrialConfig
from fedrela_bench.nested import Json
from fedrela_bench.study.controls import candidates, is_control, relabeler_text
from fedrela_bench.study.ledger import Ledger
from fedrela_bench.study.pairing import Baselines
from fedrela_bench.study.plan import Plan
from fedrela_bench.study.results import Row, choose, collect, label, over_baseline, paired_gains, pareto_front
from fedrela_bench.study.space import ALGORITHM, PAPER_DEFAULT

RACE_SEEDS = 3
"""Seeds of the first heat of a race; the front of that heat gets all of them."""
RACE_SHARE = 3
"""One configuration in so many goes into the first heat."""
TAU, SCALE = "relabel.tau", "relabel.post_relabel_lr_scale"
CONTROL, DROP = "control", "drop"
"""Roles of the two arms with a lower learning rate from T on: without and with relabelling."""


@dataclass(frozen=True)
class Arm:
    """A configuration to confirm."""

    name: str
    point: Json
    number: int | None = None
    """Optuna trial; None for arms that nothing proposed."""
    role: str = ""
    """`CONTROL`, `DROP`, `RELABELER`, or nothing special."""
    partner: str = ""
    """Of a `RELABELER`: the arm that it is the control of."""


def leaders(plan: Plan, ledger: Ledger) -> list[Arm]:
    """Of every algorithm the best trial per objective, the balanced one, and more of its front up to `confirm_top`."""
    arms = []
    for algorithm in plan.bases:
        front = pareto_front(candidates(_trials(plan, ledger, algorithm), plan.bases))
        chosen = [*choose(front, plan.request.objective_names).values(), *front]
        kept = list({row.number: row for row in chosen}.values())[: plan.request.best_confirmed]
        arms += [_arm(row) for row in kept]
    return arms


def first_heat(plan: Plan, ledger: Ledger) -> list[Arm]:
    """The best third of all trials, front by front."""
    rows, ranked = candidates(_trials(plan, ledger), plan.bases), list[Row]()
    wanted = -(-len(rows) // RACE_SHARE)
    while rows and len(ranked) < wanted:
        front = pareto_front(rows)
        if not front:
            break
        ranked += front
        rows = [row for row in rows if row not in front]
    return [_arm(row) for row in ranked[:wanted]]


def winners(plan: Plan, arms: Sequence[Arm], seeds: Sequence[int]) -> list[Arm]:
    """The arms on the front of what they reached over these seeds."""
    rows = {id(arm): (arm, outcome) for arm in arms if (outcome := plan.answer(arm.point, seeds)) is not None}
    as_rows = [Row(arm.name, arm.point[ALGORITHM], arm.point, outcome) for arm, outcome in rows.values()]
    front = pareto_front(as_rows)
    return [arm for arm in arms if any(row.point is arm.point for row in front)]


def fixed_arms(plan: Plan) -> list[Arm]:
    """The paper's default for every algorithm; with `lr_drop` the four arms that tell relabelling from a lower rate."""
    if not plan.request.space.relabels:
        return []
    return [arm for algorithm, base in plan.bases.items() for arm in _fixed(algorithm, base, plan.request.lr_drop)]


def with_controls(plan: Plan, arms: Sequence[Arm]) -> list[Arm]:
    """The arms, and after them the control of each that relabels at its own learning rate."""
    control, twins = plan.request.control, dict[str, Arm]()
    if control is None:
        return list(arms)
    for arm in arms:
        config = plan.config(arm.point, plan.seeds[0])
        own = config.relabel.tau > 0 and not arm.role and not is_control(config)
        if own and config.relabel.method != control.name:
            point = control.point(arm.point)
            twin = Arm(f"{arm.name}: {control.shown}", point, role=RELABELER, partner=arm.name)
            twins.setdefault(plan.key(point), twin)
    return [*arms, *twins.values()]


def _fixed(algorithm: str, base_config: TrialConfig, drop: float | None) -> list[Arm]:
    own = {name: value for name, value in PUBLISHED.items() if getattr(base_config.relabel, name[8:]) != value}
    default: Json = {ALGORITHM: algorithm, **PAPER_DEFAULT, **own}
    if drop is None:
        return [Arm(f"{algorithm} paper default", default)]
    base, lower = {**default, TAU: 0.0}, f"rate times {drop:g} from T on"
    return [
        Arm(f"{algorithm} baseline", {**base, SCALE: 1.0}),
        Arm(f"{algorithm} baseline, {lower} (control)", {**base, SCALE: drop}, role=CONTROL),
        Arm(f"{algorithm} paper default", {**default, SCALE: 1.0}),
        Arm(f"{algorithm} paper default, {lower}", {**default, SCALE: drop}, role=DROP),
    ]


def confirmed_rows(plan: Plan, arms: Sequence[Arm], seeds: Sequence[int]) -> list[Row]:
    """What the arms reached over all seeds, each beside its baseline over the same seeds."""
    rows, baselines = list[Row](), Baselines(plan, seeds)
    for arm in arms:
        outcome = plan.answer(arm.point, seeds)
        if outcome is None:
            continue
        algorithm = arm.point[ALGORITHM]
        row = Row(arm.name, algorithm, arm.point, outcome, (), arm.number, {}, arm.role, arm.partner)
        row = over_baseline(row, baselines)
        rows.append(row if not arm.partner else _beside(row, plan, seeds, rows))
    return rows


def _beside(row: Row, plan: Plan, seeds: Sequence[int], before: Sequence[Row]) -> Row:
    """A control's row with what its partner has over it."""
    partner = next((other.outcome for other in before if other.label == row.partner), None)
    text = relabeler_text(plan.config(row.point, seeds[0]))
    against = {} if partner is None else paired_gains(partner, row.outcome)
    return replace(row, relabeler=text, against=against)


def _trials(plan: Plan, ledger: Ledger, algorithm: str | None = None) -> list[Row]:
    rows = [row for row in collect(plan, [ledger])[1] if row.outcome.valid]
    return [row for row in rows if algorithm in (None, row.algorithm)]


def _arm(row: Row) -> Arm:
    point: dict[str, Any] = dict(row.point)
    return Arm(label(point), point, row.number)
