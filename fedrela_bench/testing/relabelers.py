"""What every relabeler and schedule must hold, for those of one's own.

    from fedrela_bench.testing.relabelers import check_relabeler, check_schedule

    check_relabeler("mine", {"share": 0.5})
    check_schedule("weekly")

A broken rule is an `AssertionError`; all of them are in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrela_bench.config import TrialConfig
from fedrela_bench.errors import BenchError
from fedrela_bench.relabelers import Client, Relabeler, Relabelled, build_relabeler, run
from fedrela_bench.rng import generator
from fedrela_bench.schedules import build_schedule

TAUS = (0.0, 0.05, 0.3, 1.0)
SAMPLES, CLASSES = 60, 5


def check_relabeler(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Check a registered relabeler on clients of every odd kind.

    Args:
        name: of the relabeler; its module is imported.
        options: as under ``relabel.options``.

    Raises:
        AssertionError: what it breaks, one line for each rule and client.
        ConfigError: no such relabeler, or wrong options.
    """
    relabeler = build_relabeler(name, options or {})
    broken = [
        f"{name}, {kind}, tau {tau:g}: {fault}"
        for tau in TAUS
        for kind, client in clients(relabeler.draws, tau).items()
        for fault in _faults(relabeler, client)
    ]
    assert not broken, "\n".join(broken)


def check_schedule(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Check a registered schedule over starts, periods and lengths of runs.

    Args:
        name: of the schedule; its module is imported.
        options: as under ``relabel.schedule_options``.

    Raises:
        AssertionError: what it breaks, one line for each rule and timing.
        ConfigError: no such schedule, or wrong options.
    """
    plug = {"relabel.schedule": name, "relabel.schedule_options": dict(options or {})}
    broken: list[str] = []
    for rounds, start, period in ((1, 0, 0), (10, 8, 0), (10, 2, 3), (10, 9, 1), (30, 24, 2), (200, 160, 7)):
        timing = {"federation.rounds": rounds, "relabel.start": start, "relabel.period": period, "relabel.tau": 0.1}
        config = TrialConfig().replace({**plug, **timing})
        broken += [f"{name}, T {start} of {rounds}, period {period}: {text}" for text in _schedule_faults(config)]
    assert not broken, "\n".join(broken)


def clients(draws: int, tau: float) -> dict[str, Client[NDArray[Any]]]:
    """Clients of every odd kind by name, the same each time; draws are random numbers per sample."""
    rng = generator(0, "relabeler kit")
    plain = rng.dirichlet(np.ones(CLASSES), SAMPLES)
    long_tailed = np.repeat(np.arange(CLASSES), (30, 15, 8, 5, 2))
    kinds = {
        "long-tailed": (plain, long_tailed),
        "in another order": (plain, rng.permutation(long_tailed)),
        "one class": (plain, np.full(SAMPLES, 2)),
        "absent classes": (plain, np.repeat((1, 4), (50, 10))),
        "sure of the labels": (np.eye(CLASSES)[long_tailed], long_tailed),
        "sure of other classes": (np.eye(CLASSES)[(long_tailed + 1) % CLASSES], long_tailed),
        "knows nothing": (np.full((SAMPLES, CLASSES), 1 / CLASSES), long_tailed),
        "float32": (plain.astype(np.float32), long_tailed),
        "a single class exists": (np.ones((SAMPLES, 1)), np.zeros(SAMPLES, dtype=np.int64)),
        "one sample": (plain[:1], long_tailed[:1]),
        "no samples": (plain[:0], long_tailed[:0]),
    }
    return {
        kind: Client(
            posterior, labels.astype(np.int64), tau, rng.random(posterior.shape), rng.random((len(labels), draws))
        )
        for kind, (posterior, labels) in kinds.items()
    }


def _faults(relabeler: Relabeler, client: Client[NDArray[Any]]) -> Iterator[str]:
    kept = [array.copy() for array in (client.posterior, client.labels, client.uniforms, client.draws)]
    try:
        found = run(relabeler, client)
    except (BenchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield f"fails with {type(error).__name__}: {error}"
        return
    given = (client.posterior, client.labels, client.uniforms, client.draws)
    if not all(np.array_equal(old, new) for old, new in zip(kept, given, strict=True)):
        yield "changes its input; work on a copy"
    for rule in (_budget, _strength, _dtype, _repeats, _tensors, _order):
        yield from rule(relabeler, client, found)


Rule = Callable[[Relabeler, Client[NDArray[Any]], Relabelled[NDArray[Any]]], Iterator[str]]


def _budget(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    moved, most = int((found.labels != client.labels).sum()), relabeler.most(client)
    if moved > most:
        yield f"moves {moved} of {len(client.labels)} samples; most() allows {most}"
    if client.tau == 0 and moved:
        yield f"moves {moved} samples without a budget"


def _strength(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    moved = found.labels != client.labels
    if not np.isfinite(found.strength).all():
        yield "gives strengths that are not finite"
    elif found.strength[~moved].any():
        yield "gives strengths to samples whose label stays; they are 0"


def _dtype(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    if found.labels.dtype != client.labels.dtype:
        yield f"gives labels of type {found.labels.dtype} for labels of type {client.labels.dtype}"
    small = Client(
        client.posterior, client.labels.astype(np.int32), client.tau, client.uniforms, client.draws, client.readings
    )
    if not np.array_equal(run(relabeler, small).labels, found.labels):
        yield "gives other labels where class ids are 32-bit"


def _repeats(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    kept = np.random.get_state()  # noqa: NPY002 - a relabeler that reads the global stream shall be seen
    try:
        others = []
        for seed in (1, 2):
            np.random.seed(seed)  # noqa: NPY002
            others.append(run(relabeler, client))
    finally:
        np.random.set_state(kept)  # noqa: NPY002
    if not all(np.array_equal(other.labels, found.labels) for other in others):
        yield "gives other labels at the second call; draw from client.uniforms or client.draws alone"


def _tensors(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    posterior, labels = torch.from_numpy(client.posterior.copy()), torch.from_numpy(client.labels.copy())
    theirs = relabeler.relabel_tensor(
        Client(posterior, labels, client.tau, client.uniforms, client.draws, client.readings)
    )
    if theirs.labels.dtype != labels.dtype or not np.array_equal(theirs.labels.numpy(), found.labels):
        yield "relabel_tensor gives other labels, or another type, than relabel"


def _order(relabeler: Relabeler, client: Client[NDArray[Any]], found: Relabelled[NDArray[Any]]) -> Iterator[str]:
    if not relabeler.order_free:
        return
    order = generator(1, "relabeler kit").permutation(len(client.labels))
    posterior, labels = client.posterior[order], client.labels[order]
    other = run(
        relabeler,
        Client(posterior, labels, client.tau, client.uniforms[order], client.draws[order], client.readings),
    )
    if not np.array_equal(other.labels, found.labels[order]):
        yield "gives other labels in another order of the samples; set order_free = False if that is meant"


def _schedule_faults(config: TrialConfig) -> Iterator[str]:
    schedule, again = build_schedule(config), build_schedule(config)
    try:
        refreshes = schedule.refreshes
        budgets = [schedule.budget(refresh) for refresh in range(len(refreshes))]
    except (BenchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield f"fails with {type(error).__name__}: {error}"
        return
    if refreshes[:1] != (config.relabel_round,):
        yield f"its first refresh is {refreshes[:1]}; it is always at T"
    if again.refreshes != refreshes or [again.budget(place) for place in range(len(refreshes))] != budgets:
        yield "gives other refreshes or budgets when built again; it must be a pure function"
    if max(budgets, default=0.0) > config.relabel.tau:
        yield f"spends {max(budgets):g} of a budget of {config.relabel.tau:g}"
