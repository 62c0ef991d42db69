"""Times a round of every algorithm against FedAvg's: python benchmarks/algorithm_time.py [ALGORITHM ...].

Of your own as well: python benchmarks/algorithm_time.py --plugin fedls.py fedls.

All train the same LeNet on the same 2,000 images of Fashion-MNIST's shape (real ones where they are found), 10
clients, Dirichlet 0.3, two local epochs in batches of 32, learning rate 0.001 so that none can diverge, options at
their defaults, nothing evaluated. The algorithms take turns within each repetition, so that what disturbs one
disturbs all; the ratio is the median over the repetitions of an algorithm's seconds of a busy core over FedAvg's of
the same repetition. The first round of each, which builds and caches, is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

from fedrela_bench import Simulation, TrialConfig, plugins
from fedrela_bench.algorithms import ALGORITHMS
from fedrela_bench.bench.case import prepare
from fedrela_bench.bench.workloads import WORKLOADS, Workload
from fedrela_bench.errors import ConfigError
from fedrela_bench.faults import unknown_name
from fedrela_bench.nested import deep_merge

CHANGES = {
    "data": {"n_max": 200},
    "federation": {"clients": 10},
    "training": {"model": "lenet", "batch_size": 32, "lr": 0.001},
    "evaluation": {"eval_every": 1_000_000},
}


def workload() -> Workload:
    """The sizes of the comparison, with images where no real ones are found."""
    fm = WORKLOADS["fm"]
    return Workload("algorithms", "round", "a round of each algorithm", deep_merge(fm.values, CHANGES), fm.images)


def seconds(rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Seconds that a core was busy with a round, by algorithm and repetition."""
    case = prepare(workload(), short=False, device="cpu")
    runs: dict[str, Simulation] = {}
    for name in names:
        config: TrialConfig = case.config.replace({"federation.algorithm": name})
        runs[name] = Simulation(config, case.dataset, device="cpu")
        runs[name].run_round()
    taken: dict[str, list[float]] = {name: [] for name in names}
    for repetition in range(rounds):
        first = repetition % len(names)
        for name in (*names[first:], *names[:first]):
            start = time.process_time()
            runs[name].run_round()
            taken[name].append(time.process_time() - start)
    return taken


def ratios(taken: Mapping[str, Sequence[float]], other: str = "fedavg") -> dict[str, float]:
    """Median of an algorithm's time over that of another, repetition by repetition."""
    return {
        name: median(own / base for own, base in zip(times, taken[other], strict=True)) for name, times in taken.items()
    }


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for; plugins are in force afterwards. A wrong name ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", nargs="*", help="names; all where none is given")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE|MODULE", help="algorithms of your own")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions")
    parser.add_argument("--out", type=Path, help="JSON file of all seconds")
    chosen = parser.parse_args(words)
    try:
        plugins.activate(plugins.read_all(chosen.plugin))
    except ConfigError as error:
        parser.error("\n".join(error.faults))
    unknown = [unknown_name("algorithm", name, name, ALGORITHMS) for name in chosen.algorithm if name not in ALGORITHMS]
    unknown += [] if chosen.rounds >= 1 else [f"--rounds {chosen.rounds}: give at least 1"]
    if unknown:
        parser.error("\n".join(unknown))
    chosen.algorithm = sorted({"fedavg", *(chosen.algorithm or ALGORITHMS)})
    return chosen


def main() -> None:
    """Print a Markdown table, and write the seconds as JSON where `--out` asks for them."""
    chosen = arguments()
    torch.set_num_threads(1)
    taken = seconds(chosen.rounds, chosen.algorithm)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(taken, indent=1) + "\n", encoding="utf-8")
    print("| algorithm | core seconds a round | over FedAvg |\n|---|---|---|")
    for name, ratio in sorted(ratios(taken).items(), key=lambda item: item[1]):
        print(f"| `{name}` | {median(taken[name]):.3f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
