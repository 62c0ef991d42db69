"""Checks of whole runs: stopping, forking, relabelling, degenerate options, learning."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrela_bench.algorithms import ALGORITHMS, build_algorithm
from fedrela_bench.config import TrialConfig
from fedrela_bench.data import load_dataset
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.plugins import is_text
from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import states, toys
from fedrela_bench.testing.cases import MAJORITY, Case, Equal
from fedrela_bench.testing.rules import Check, require

RELABEL = {"tau": 0.3, "start": 2}
PERIODIC = {"tau": 0.3, "start": 1, "period": 2, "refresh_from": "current"}
KEEP = (
    "keep what a client remembers in context.state (written by finish) and what the server remembers in server.state "
    "(written by receive and server_step), nothing in self, in the class or in the module; draw random numbers from "
    "context.generator(purpose), not from torch, numpy.random or random"
)
ROUNDS = 5
"""Of the short run on digits."""


def describes_itself(case: Case) -> None:
    """Name, citation, purpose, docstring and options."""
    kind = ALGORITHMS[case.name]
    build_algorithm(case.name, {}, 10)
    build_algorithm(case.name, {name: field.default for name, field in kind.OptionsModel.model_fields.items()}, 10)
    said = {"citation": kind.citation, "purpose": kind.purpose, "the class's docstring": kind.__doc__}
    missing = [what for what, text in said.items() if not is_text(text)]
    require(not missing, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} empty")
    require(kind.name == case.name, f"its class is called {kind.name}")
    require("scored" in kind.posterior_heads, f"posterior_heads is {kind.posterior_heads}")


# resuming ------------------------------------------------------------------------------------------------------------


def stops_and_resumes(case: Case) -> None:
    """After every round a snapshot is written, read, and gone on from."""
    trial, data = states.trial(case, PERIODIC), toys.four_clients()
    full = states.whole_run(trial)
    before = _global_generators()
    part, results = Simulation(trial, data), []
    with tempfile.TemporaryDirectory() as folder:
        while part.completed_rounds < trial.federation.rounds:
            results.append(part.run_round())
            done = part.completed_rounds
            part = states.through_file(part, trial, data, Path(folder) / f"{done}.pt")
            differs = states.differing(states.parts(part.snapshot()), full.states[done])
            require(not differs, f"resumed after every round, {differs} differ after round {done}")
    require(toys.figures(results) == toys.figures(full.results), "resumed after every round, its metrics differ")
    require(results[-1].metrics["relabel/changed"] > 0, "nothing was relabelled, although tau is 0.3")
    for name, state in _global_generators().items():
        require(states.same(state, before[name]), f"the global generator of {name} was drawn from")


def _global_generators() -> dict[str, Any]:
    numpy_state = np.random.get_state(legacy=True)  # noqa: NPY002 - looked at, not used
    return {"torch": torch.get_rng_state(), "numpy": numpy_state, "random": random.getstate()}


def forks(case: Case, relabel: Mapping[str, Any]) -> None:
    """A relabelled run that starts from the base run's snapshot at T."""
    start, data, relabelled = relabel["start"], toys.four_clients(), states.trial(case, relabel)
    full, trunk = states.whole_run(relabelled), Simulation(states.trial(case), data)
    for _ in range(start):
        trunk.run_round()
    with tempfile.TemporaryDirectory() as folder:
        fork = states.through_file(trunk, relabelled, data, Path(folder) / "trunk.pt")
        require(toys.figures(list(fork)) == toys.figures(full.results)[start:], "the metrics of the fork differ")
    differs = states.differing(states.parts(fork.snapshot()), full.states[-1])
    require(not differs, f"{differs} differ at the end")


# relabelling ---------------------------------------------------------------------------------------------------------


def base_without_budget(case: Case, relabel: Mapping[str, Any]) -> None:
    """FedReLa that cannot relabel."""
    base = states.whole_run(states.trial(case))
    simulation, results = toys.run(states.trial(case, relabel), toys.four_clients())
    differs = states.differing(states.parts(simulation.snapshot()), base.states[-1])
    require(not differs, f"{differs} differ from the base run's")
    require(toys.figures(results) == toys.figures(base.results), "its metrics differ from the base run's")


def relabels_only_what_it_may(case: Case) -> None:
    """Nothing before T; after it labels move to classes that the client has fewer of."""
    data = toys.four_clients()
    base, relabelled = (states.whole_run(states.trial(case, relabel)).states for relabel in (None, RELABEL))
    require(states.same(relabelled[:3], base[:3]), "the run differs from its base before T")
    changed = not states.same(relabelled[3]["params"], base[3]["params"])
    require(changed, "relabelling changes no parameter: the loss does not read the labels in force")
    new = relabelled[-1]["labels"].numpy()
    for client, rows in enumerate(data.clients):
        counts = data.client_counts[client]
        moved = rows[new[rows] != data.labels[rows]]
        rarer = (counts[new[moved]] < counts[data.labels[moved]]).all()
        require(rarer, f"client {client} has labels moved to a class that is no rarer there")
    require((new != data.labels).any(), "no label was changed")


def every_head_relabels(case: Case) -> None:
    """All values of relabel.posterior_head, in both presets."""
    data = toys.four_clients()
    for head in ALGORITHMS[case.name].posterior_heads:
        for preset in ("paper", "author"):
            relabel = {**RELABEL, "preset": preset, "posterior_head": head}
            simulation, results = toys.run(states.trial(case, relabel, federation={"rounds": 3}), data)
            log, told = results[-1].relabelled, f"posterior_head {head}, preset {preset}: "
            require(simulation.status == "completed", f"{told}the run {simulation.status}")
            require(results[-1].metrics["relabel/changed"] > 0, f"{told}nothing was relabelled")
            inside = log is not None and ((log["posterior"] > 0) & (log["posterior"] < 1)).all()
            require(inside, f"{told}posteriors are not strictly between 0 and 1")


def reads_current_counts(case: Case) -> None:
    """The local loss at other label counts, in a client's first round and after relabelling."""
    trial = states.trial(case, RELABEL, federation={"participation": 1.0})
    simulation = Simulation(trial, toys.four_clients())
    expected = _reads_counts(Simulation(trial, toys.four_clients())) if case.label_stats is None else case.label_stats
    for _ in range(3):
        simulation.run_round()
    now = _reads_counts(simulation)
    seen = f"the loss after relabelling {'depends' if now else 'does not depend'} on context.label_counts"
    require(now == expected, f"{seen}, but it {'should' if expected else 'should not'}")


def _reads_counts(simulation: Simulation) -> bool:
    index, participants, total = states.begin(simulation)
    before = states.train(simulation, participants[0], index, total).loss
    context = simulation._trainer.context

    def counted_anew(*arguments: Any) -> Any:
        made = context(*arguments)
        made.label_counts = made.label_counts.flip(0) + 1
        return made

    simulation._trainer.context = counted_anew  # type: ignore[method-assign,assignment]
    after = states.train(simulation, participants[0], index, total).loss
    return bool(before != after)


# degenerate options --------------------------------------------------------------------------------------------------


def degenerates(case: Case) -> None:
    """With some options the algorithm is another one."""
    for equal in case.equals:
        _equals(case, equal)


def _equals(case: Case, equal: Equal) -> None:
    data = toys.equal_clients() if equal.equal_clients else toys.four_clients()
    ends = []
    for name, options in ((case.name, {**case.options, **equal.options}), (equal.other, equal.other_options)):
        federation = {"algorithm": name, "options": options, "rounds": equal.rounds}
        simulation, _ = toys.run(states.trial(case, federation=federation, training=equal.training), data)
        ends.append(states.named(simulation))
    ours, theirs = ends
    pairs = {name: name for name in ours}
    if equal.names:
        starts = [(name, mine) for name in ours for mine in equal.names if name.startswith(mine)]
        pairs = {name: equal.names[mine] + name.removeprefix(mine) for name, mine in starts}
    require(set(pairs.values()) == set(theirs), f"its parameters are not those of {equal.other}")
    for mine, other in pairs.items():
        told = f"with {dict(equal.options)} {mine} differs from {other} of {equal.other}"
        require(states.same(ours[mine], theirs[other], equal.tolerance), told)


# learning ------------------------------------------------------------------------------------------------------------


def digits_trial(case: Case, seed: int = 1) -> TrialConfig:
    """Five clients, imbalance factor 10, Dirichlet 1, five rounds of two local epochs on a perceptron."""
    training = {"model": "kit_mlp", "local_epochs": 2, "batch_size": 16, "lr": case.lr, **case.training}
    data = {"source": "digits", "profile": "lt", "imbalance_factor": 10, "n_max": 100, "alpha": 1, "partition_seed": 1}
    options = {**case.options, **case.learning}
    return TrialConfig(
        data=data,
        federation={"algorithm": case.name, "options": options, "clients": 5, "rounds": ROUNDS},
        training=training,
        evaluation={"eval_every": ROUNDS},
        seed=seed,
    )


@cache
def _digits() -> FederatedDataset:
    return load_dataset(digits_trial(Case("fedavg")))


def digits_accuracy(case: Case, seed: int = 1) -> float:
    """Test accuracy after the short run."""
    *_, last = Simulation(digits_trial(case, seed), _digits())
    return last.metrics["test/overall"]


def learns_digits(case: Case) -> None:
    """Well above the majority class."""
    reached = digits_accuracy(case)
    require(case.reaches >= 2 * MAJORITY, f"reaches = {case.reaches} proves nothing: naming one class has {MAJORITY}")
    require(reached > case.reaches, f"accuracy {reached:.3f} after {ROUNDS} rounds on digits, not above {case.reaches}")


RUNS = (
    Check(
        "description",
        "An algorithm says who it is, and its options have defaults that are valid.",
        "give the class name, citation, purpose, a docstring, an OptionsModel whose every field has a default, and "
        "posterior_heads with 'scored' among them",
        describes_itself,
    ),
    Check(
        "resume",
        "A run that is stopped and resumed after every round is bit for bit the run that never stopped.",
        KEEP,
        stops_and_resumes,
    ),
    *(
        Check(
            f"fork-{name}",
            "A relabelled run that forks from its base run's snapshot at T is bit for bit the whole relabelled run.",
            KEEP,
            partial(forks, relabel=relabel),
        )
        for name, relabel in (("once", RELABEL), ("periodic", PERIODIC))
    ),
    *(
        Check(
            f"base-{name}",
            "Relabelling without budget, or that would start after the last round, changes no bit of the base run.",
            "let nothing depend on relabel.* but the labels and counts that context holds",
            partial(base_without_budget, relabel=relabel),
        )
        for name, relabel in (("without-tau", {"tau": 0.0, "start": 2}), ("without-time", {"tau": 0.3, "start": 1.0}))
    ),
    Check(
        "relabelling",
        "Relabelling changes nothing before T, and after it moves samples to classes that are rarer at their client.",
        "compute the loss from the labels of the batch, never from labels or counts that were kept from earlier rounds",
        relabels_only_what_it_may,
    ),
    Check(
        "posterior-heads",
        "Every posterior head gives probabilities that relabelling can lean on.",
        "return (B, C) finite logits from posterior for every name in posterior_heads",
        every_head_relabels,
    ),
    Check(
        "label-counts",
        "A loss that uses class counts uses those of the labels in force, relabelled or not.",
        "read context.label_counts in every round; do not keep it in context.state (label_stats=True or False says "
        "which of the two is meant)",
        reads_current_counts,
    ),
    Check(
        "degenerate",
        "With the options that switch it off, the algorithm is the other one, bit for bit or to the stated tolerance.",
        "leave out the extra term entirely where its factor is 0, or state the case as it is (equals=)",
        degenerates,
    ),
    Check(
        "learns",
        "A short run on real digits is well above always naming one class.",
        "look at the sign and the scale of the loss and of the server's step; lr= and learning= choose other settings",
        learns_digits,
    ),
)
