"""Times FedReLa's pass over all clients against a training round."""

from __future__ import annotations

from collections.abc import Callable

from fedrela_bench.bench.case import Case
from fedrela_bench.bench.figures import lane_json, ratio_json
from fedrela_bench.bench.measure import Settings, lane, take_turns
from fedrela_bench.nested import Json
from fedrela_bench.simulation import Simulation
from fedrela_bench.simulation.relabeling import relabel_client, relabeler_of
from fedrela_bench.simulation.training import RoundTrainer


def measure_relabel(case: Case, settings: Settings, say: Callable[[str], None]) -> Json:
    """Figures of a case of kind ``relabel``: lanes ``training`` (a round that evaluates nothing) and ``relabel``.

    Args:
        case: its configuration relabels.
        settings: repetitions and device.
        say: takes a line of progress.
    """
    device = settings.place
    relabel = relabel_pass(Simulation(case.config, case.dataset, settings.device))
    lanes = [lane("training", _training(case, settings.device), device), lane("relabel", relabel, device)]
    seconds = sum(item.warm_up() for item in lanes)
    for repetition in range(settings.rounds):
        take_turns(lanes, seconds)
        say(f"{case.key}: repetition {repetition + 1} of {settings.rounds}")
    wall = device.type != "cpu"
    pairs = zip(lanes[1].spans, lanes[0].spans, strict=True)
    values = [a.wall / b.wall if wall else a.cpu / b.cpu for a, b in pairs]
    return {
        "lanes": {item.name: lane_json(item.spans, case.samples, 1.0) for item in lanes},
        "ratios": {"relabel/round": ratio_json(values)},
    }


def _training(case: Case, device: str) -> Callable[[], object]:
    config = case.config.replace({"relabel.tau": 0.0, "evaluation.eval_every": case.config.federation.rounds})
    return Simulation(config, case.dataset, device).run_round


def relabel_pass(run: Simulation) -> Callable[[], None]:
    """The pass as the round at T does it: every client at the global model, the new labels thrown away.

    Args:
        run: its configuration has a budget tau above 0.
    """
    config = run.config
    relabeler = relabeler_of(config)
    trainer = RoundTrainer(config, run.data, run.model, run.algorithm, run.state)
    clients = trainer.with_data(range(config.federation.clients))

    def relabel() -> None:
        for client in clients:
            rows = run.data.rows[client]
            posterior = trainer.posterior(client, config.relabel_round, 0)
            labels = run.data.original[rows], run.state.labels[rows]
            relabel_client(posterior, config, client, *labels, 0, relabeler, config.relabel.tau)

    return relabel
