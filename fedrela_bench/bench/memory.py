"""Peak memory of a run with few and with many clients, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from fedrela_bench.bench.case import Case
from fedrela_bench.bench.figures import ratio_json
from fedrela_bench.bench.machine import peak_bytes
from fedrela_bench.bench.measure import Settings
from fedrela_bench.errors import RunError
from fedrela_bench.nested import Json

FEW = 10
ROUNDS = 1


def measure_memory(case: Case, settings: Settings, say: Callable[[str], None]) -> Json:
    """Figures of a case of kind ``memory``: peaks by number of clients, and the ratio ``memory``.

    Args:
        case: with many clients.
        settings: the device.
        say: takes a line of progress.

    Raises:
        RunError: one of the processes failed.
    """
    many = case.config.federation.clients
    found = {clients: _in_a_process(case, clients, settings.device) for clients in (FEW, many)}
    say(f"{case.key}: measured with {FEW} and {many:,} clients")
    ratio = found[many]["peak"] / found[FEW]["peak"]
    return {
        "memory": {str(clients): values for clients, values in found.items()},
        "ratios": {"memory": ratio_json([ratio])},
    }


def _in_a_process(case: Case, clients: int, device: str) -> dict[str, int]:
    words = [sys.executable, "-m", __name__, case.workload.name, str(int(case.short)), str(clients), device]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(
            f"the run with {clients:,} clients failed: {last}; free memory, or leave the workload memory out"
        )
    values: dict[str, int] = json.loads(done.stdout)
    return values


def run(name: str, short: bool, clients: int, device: str) -> dict[str, int]:
    """Run a few rounds in this process.

    Returns:
        Bytes: ``start`` (libraries and images), ``peak``, and ``state`` that the algorithm declares for its clients.
    """
    import torch

    from fedrela_bench.bench.case import synthetic
    from fedrela_bench.bench.workloads import WORKLOADS
    from fedrela_bench.simulation import Simulation

    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    config = workload.config(short).replace({"federation.clients": clients})
    dataset = synthetic(config, workload.images)
    start = peak_bytes()
    simulation = Simulation(config, dataset, device)
    for _ in range(ROUNDS):
        simulation.run_round()
    size = simulation.model.size(simulation.model.net.backbone.feature_dim, dataset.num_classes)
    state = 4 * clients * simulation.algorithm.client_state_floats(size)
    return {"start": start, "peak": peak_bytes(), "state": state}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2] == "1", int(sys.argv[3]), sys.argv[4])))
