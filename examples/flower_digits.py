"""FedAvg on long-tailed handwritten digits with Flower, without and with FedReLa.

    pip install "fedrela-bench[flower]"
    python examples/flower_digits.py --rounds 40 --start 32 --seed 1

`client_app` is an ordinary Flower ClientApp and `server_app` an ordinary ServerApp: they run under `flwr run` as well.
Here they are driven in this process by a small `Grid`, since Flower's own simulation engine pins another Ray than this
package. Labels in force and the last relabelling live in the node's `context.state`, which Flower keeps between rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from pytorch_digits import CLIENTS, Digits, accuracy, compare, fit, network

from fedrela_bench.relabel import Relabeler


def labels_in_force(
    relabeler: Relabeler, net: torch.nn.Module, data: Digits, round: int, context: Context
) -> torch.Tensor:
    """The client's labels for this round: relabelled first, if it is due; kept in `context.state`."""
    client, state = int(context.node_config["partition-id"]), context.state
    last = int(state["relabelling"]["last"]) if "relabelling" in state else None
    if relabeler.due(round, last):
        with torch.no_grad():
            result = relabeler.relabel_logits(client, round, net(data.images[client]), data.labels[client])
        state["labels"] = ArrayRecord([result.labels.numpy()])
        state["relabelling"] = ConfigRecord({"last": result.refresh, "changed": result.count})
    if "labels" not in state:
        return data.labels[client]
    return torch.from_numpy(state["labels"].to_numpy_ndarrays()[0])


def client_app(data: Digits, relabeler: Relabeler, seed: int) -> ClientApp:
    """Trains the global model on the node's own digits."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client, round = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"]) - 1
        net = network(seed)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        labels = labels_in_force(relabeler, net, data, round, context)
        fit(net, data.images[client], labels, seed, round, client)
        metrics = MetricRecord({"num-examples": len(labels)})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def server_app(data: Digits, rounds: int, seed: int, found: dict[str, float]) -> ServerApp:
    """Flower's FedAvg over all clients; the accuracies of the last model go to `found`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        result = strategy.start(grid, ArrayRecord(network(seed).state_dict()), num_rounds=rounds)
        net = network(seed)
        net.load_state_dict(result.arrays.to_torch_state_dict())
        found.update(accuracy(net, data))

    return app


class InProcess(Grid):
    """Carries messages between a ServerApp and one ClientApp on numbered nodes, in the order of their numbers."""

    def __init__(self, app: ClientApp, nodes: int) -> None:
        self.app = app
        self.contexts = {node: _context(node, {"partition-id": node - 1}) for node in range(1, nodes + 1)}
        self._replies: dict[str, Message] = {}
        self._run: Any = None
        # Messages bear the sender's identity, which Flower's own runtimes set in the process of a task.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, len(self.contexts) + 1

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        first = len(self._replies)
        replies = self.send_and_receive(messages)
        self._replies |= {str(first + index): reply for index, reply in enumerate(replies)}
        return list(self._replies)[first:]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies[name] for name in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        ordered = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        return [self.app(message, self.contexts[message.metadata.dst_node_id]) for message in ordered]


def _context(node: int, config: dict[str, Any]) -> Context:
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})


def federated(data: Digits, relabeler: Relabeler, rounds: int, seed: int) -> tuple[dict[str, float], int]:
    """Accuracies after so many rounds, and how many labels were changed."""
    found: dict[str, float] = {}
    grid = InProcess(client_app(data, relabeler, seed), CLIENTS)
    server_app(data, rounds, seed, found)(grid, _context(0, {}))
    states = [context.state for context in grid.contexts.values()]
    return found, sum(int(state["relabelling"]["changed"]) for state in states if "relabelling" in state)


if __name__ == "__main__":
    compare("FedAvg on digits without and with FedReLa, by Flower", federated)
