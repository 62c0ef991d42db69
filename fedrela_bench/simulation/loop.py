"""The federated simulation: relabelling, local training, aggregation and evaluation, round by round."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedrela_bench.config import TrialConfig
from fedrela_bench.data.federated import FederatedDataset
from fedrela_bench.data.load import settled
from fedrela_bench.errors import ConfigError, RunError
from fedrela_bench.simulation.devices import usable_device
from fedrela_bench.simulation.evaluate import SCORED
from fedrela_bench.simulation.firstpass import FirstPass, PosteriorStore
from fedrela_bench.simulation.kept import first_faults
from fedrela_bench.simulation.metrics import RoundResult, accuracies, confusion_matrix
from fedrela_bench.simulation.personal import personal_metrics
from fedrela_bench.simulation.precision import set_arithmetic
from fedrela_bench.simulation.relabeling import RelabelLog, RelabelSchedule, relabel_client, relabeler_of
from fedrela_bench.simulation.setup import make_model, make_resident
from fedrela_bench.simulation.snapshot import Snapshot
from fedrela_bench.simulation.state import RunState, Status, capture, reinstate
from fedrela_bench.simulation.training import RoundTrainer
from fedrela_bench.simulation.workers import Workers


class Simulation:
    """One federated run; iterate to get a `RoundResult` per round.

    Args:
        config: the trial.
        dataset: from `load_dataset` with the same configuration.
        device: such as ``cpu`` or ``cuda``.
        workers: processes that share the clients of a round, on the CPU; 1 is this process. Their number changes no
            bit of the result where each process has one thread. `close` (or a ``with`` block) ends them.
        posteriors: where the posteriors of the first pass are kept for other runs of the same base run.

    Raises:
        ConfigError: configuration and dataset do not fit, names and options are wrong, or an algorithm of one's own
            starts from a state that is no tensors.
        RunError: workers cannot be started.
    """

    def __init__(
        self,
        config: TrialConfig,
        dataset: FederatedDataset,
        device: str | torch.device = "cpu",
        workers: int = 1,
        posteriors: PosteriorStore | None = None,
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers = {workers} must be at least 1")
        self.config = config = settled(config, dataset)
        self.dataset = dataset
        place = usable_device(device)
        self.model, self.algorithm, server = make_model(config, dataset, place)
        self.data = make_resident(config, dataset, place, self.algorithm.server_images())
        counters = [counter.clone() for counter in self.model.counters]
        self.state = RunState(server, counters, self.data.original.clone())
        self._schedule, self._relabeler = RelabelSchedule(config), relabeler_of(config)
        self._trainer = RoundTrainer(config, self.data, self.model, self.algorithm, self.state)
        faults = first_faults(self._trainer)
        if faults:
            raise ConfigError(faults)
        self._first_pass = FirstPass(config, dataset.digest, place, posteriors)
        self._in_round = False
        self._trainer.crew = Workers(self._trainer, workers) if workers > 1 else None

    def close(self) -> None:
        """End the worker processes, if there are any; the simulation goes on in this process."""
        self._trainer.hands.close()
        self._trainer.crew = None

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def status(self) -> Status:
        """running, completed, diverged (a loss or parameter is not finite) or stopped (early)."""
        return self.state.status

    @property
    def completed_rounds(self) -> int:
        """Rounds run so far, those before a restored snapshot included."""
        return self.state.completed_rounds

    @property
    def communication(self) -> dict[str, int]:
        """Floats sent per participant and round, ``down`` and ``up``; ``once`` where all clients share some at first.

        What they share once is counted over all of them; each participant gets it whole.
        """
        size = self.model.size(self.model.net.backbone.feature_dim, self.dataset.num_classes)
        down, up = self.algorithm.communication(size)
        once = self.algorithm.shared_once(self.state.server, math.prod(self.dataset.input_shape))
        return {"down": down, "up": up, **({"once": once} if once else {})}

    def __iter__(self) -> Iterator[RoundResult]:
        self._complete_if_done()
        while self.state.status == "running":
            result = self.run_round()
            self._complete_if_done()
            yield result

    def _complete_if_done(self) -> None:
        if self.state.status == "running" and self.completed_rounds >= self.config.federation.rounds:
            self.state.status = "completed"

    def run_round(self) -> RoundResult:
        """Run the next round.

        Raises:
            RunError: an earlier round was interrupted half-way.
        """
        self._require_between_rounds()
        self._in_round = True
        set_arithmetic(self.config.training.tf32, self.model.params.device)
        started = time.perf_counter()
        index = self.completed_rounds
        self._repeat_for_resume(index)
        participants = self._trainer.participants(index)
        log = self._relabel(index, participants)
        loss = self._trainer.run(index, participants)
        self.state.completed_rounds = index + 1
        metrics = {"train/lr": self._trainer.learning_rate(index), **self._relabel_metrics()}
        if loss is not None and np.isfinite(loss):
            metrics["train/loss"] = loss
        confusion = self._score(loss, metrics)
        self._in_round = False
        metrics["time/round_seconds"] = time.perf_counter() - started
        return RoundResult(
            round=self.completed_rounds,
            status="diverged" if self.state.status == "diverged" else "ok",
            metrics=metrics,
            confusion=confusion,
            flow=None if log is None else self.flow(),
            relabelled=log,
            seconds=metrics["time/round_seconds"],
            participants=tuple(participants),
        )

    def _require_between_rounds(self) -> None:
        if self._in_round:
            raise RunError("the last round was interrupted half-way; restore a snapshot before going on")

    def _repeat_for_resume(self, index: int) -> None:
        relabel = self.config.relabel
        if relabel.author_resume and 0 < index == self.config.relabel_round:
            self.state.client_states.clear()
            self.state.private.clear()
            self.state.server.state = self.algorithm.initial_server_state(self.state.server)
            self._trainer.run(index - 1, self._trainer.participants(index - 1))

    # relabelling -----------------------------------------------------------------------------------------------------

    def _relabel(self, index: int, participants: Sequence[int]) -> dict[str, np.ndarray] | None:
        everyone = self._trainer.with_data(range(self.config.federation.clients))
        due = self._schedule.due(index, participants, everyone, self.state.refreshes)
        if not due:
            return None
        refresh, log = self._schedule.refresh_index(index), RelabelLog()
        tau = self._schedule.rule.budget(refresh)
        self.state.server.round = index
        first = index == self.config.relabel_round and not self.state.refreshes
        hands = self._trainer.hands
        known = self._first_pass.recall(due) if first else None
        for client, posterior in known or self._first_pass.keep(hands.posteriors(due, index, refresh), first):
            rows = self.data.rows[client]
            original, labels = self.data.original[rows], self.state.labels[rows]
            new, decision = relabel_client(
                posterior, self.config, client, original, labels, refresh, self._relabeler, tau
            )
            log.add(client, rows, original, new, decision)
            self.state.labels[rows] = new
            self.state.refreshes[client] = refresh
        return log.columns()

    def flow(self) -> np.ndarray:
        """(C, C) training samples by original label (rows) and label in force (columns)."""
        original, labels = self.data.original.cpu().numpy(), self.state.labels.cpu().numpy()
        return confusion_matrix(original, labels, self.dataset.num_classes)

    def _relabel_metrics(self) -> dict[str, float]:
        if not self.state.refreshes:
            return {}
        changed = int((self.state.labels != self.data.original).sum())
        return {"relabel/changed": float(changed), "relabel/rate": changed / len(self.state.labels)}

    # scoring ---------------------------------------------------------------------------------------------------------

    def _score(self, loss: float | None, metrics: dict[str, float]) -> dict[str, np.ndarray]:
        if not self._finite(loss):
            self.state.status = "diverged"
            return {}
        last = self.completed_rounds == self.config.federation.rounds
        if not last and self.completed_rounds % self.config.evaluation.eval_every:
            return {}
        scored = self._confusions()
        for score, confusion in scored.items():
            mark = f".{score}" if score else ""
            for part, matrix in confusion.items():
                values = accuracies(matrix, self.data.groups)
                metrics |= {f"{part}/{name}{mark}": value for name, value in values.items()}
        if self.algorithm.scores_clients():
            metrics |= personal_metrics(self._trainer)
        self._watch(metrics)
        return scored[SCORED]

    def evaluate(self) -> dict[str, np.ndarray]:
        """(C, C) confusion per slice of the test set, of the global model as it stands."""
        return self._confusions()[SCORED]

    def _confusions(self) -> dict[str, dict[str, np.ndarray]]:
        set_arithmetic(self.config.training.tf32, self.model.params.device)
        labels, classes = self.data.test_labels, self.dataset.num_classes
        return {
            score: {
                name: confusion_matrix(labels[rows], predicted[rows], classes)
                for name, rows in self.data.slices.items()
            }
            for score, predicted in self._trainer.hands.predict().items()
        }

    def _finite(self, loss: float | None) -> bool:
        server = self.state.server
        finite = torch.isfinite(server.params).all()
        if server.buffers.numel():
            finite &= torch.isfinite(server.buffers).all()
        return bool(finite) and (loss is None or bool(np.isfinite(loss)))

    def _watch(self, metrics: dict[str, float]) -> None:
        patience = self.config.evaluation.early_stop_patience
        if not patience:
            return
        value = metrics.get("val/overall", metrics["test/overall"])
        best, since = self.state.best
        self.state.best = (value, 0) if value > best else (best, since + 1)
        if self.state.best[1] >= patience:
            self.state.status = "stopped"

    # state -----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A copy of the state between rounds, on the CPU.

        Raises:
            RunError: a round was interrupted half-way; its state is not between rounds.
        """
        self._require_between_rounds()
        return capture(self.state, self.config, self.dataset.digest)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of the same base run, with this configuration's relabelling.

        Raises:
            RunError: the snapshot is of another run, or lies past the round this run relabels at.
        """
        reinstate(self.state, snapshot, self.config, self.dataset.digest)
        self._in_round = False
