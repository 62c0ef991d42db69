"""FedAvg on long-tailed handwritten digits in plain PyTorch, without and with FedReLa.

    python examples/pytorch_digits.py --rounds 40 --start 32 --seed 1

Three lines are FedReLa's: the `Relabeler`, `due`, and `relabel_logits`. The rest is any federated loop. It shows where
they go, not a gain: a few hundred images are learnt by heart long before T, and then relabelling has little to lean on.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrela_bench import TrialConfig, load_dataset
from fedrela_bench.relabel import Relabeler
from fedrela_bench.simulation import shot_groups

CLIENTS = 5


class Digits:
    """Long-tailed digits of several clients: images (n, 1, 8, 8) in [0, 1] and labels of each, and a test set."""

    def __init__(self, seed: int) -> None:
        data = {"source": "digits", "profile": "lt", "imbalance_factor": 20, "alpha": 0.5, "partition_seed": seed}
        kept = load_dataset(TrialConfig(data=data, federation={"clients": CLIENTS}))
        images = _inputs(kept.train_images[kept.subset])
        self.images = [images[rows] for rows in kept.clients]
        self.labels = [torch.from_numpy(kept.labels[rows].astype(np.int64)) for rows in kept.clients]
        self.test_images, self.test_labels = _inputs(kept.test_images), torch.from_numpy(kept.test_labels).long()
        self.groups = shot_groups(kept.class_counts)


def _inputs(images: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).float() / 255


def network(seed: int) -> nn.Module:
    """A small convolutional network with keyed first values."""
    torch.manual_seed(seed)
    features = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))


def fit(net: nn.Module, images: Tensor, labels: Tensor, seed: int, round: int, client: int) -> None:
    """Two local epochs of SGD, in place; shuffled by (seed, round, client)."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-5)
    shuffle = torch.Generator().manual_seed(hash((seed, round, client)) % 2**31)
    for _ in range(2):
        for rows in torch.randperm(len(labels), generator=shuffle).split(16):
            optimizer.zero_grad()
            F.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(net: nn.Module, data: Digits) -> dict[str, float]:
    """Share of correct test images: overall, and over the classes of each group."""
    right = net(data.test_images).argmax(dim=1) == data.test_labels
    chosen = {name: torch.isin(data.test_labels, torch.tensor(ids)) for name, ids in data.groups.items() if ids}
    return {
        "overall": float(right.float().mean()),
        **{name: float(right[at].float().mean()) for name, at in chosen.items()},
    }


def federated(data: Digits, relabeler: Relabeler, rounds: int, seed: int) -> tuple[dict[str, float], int]:
    """Accuracies after so many rounds of FedAvg, and how many labels had been changed."""
    net, labels, last = network(seed), [own.clone() for own in data.labels], [None] * CLIENTS
    total = sum(map(len, labels))
    for index in range(rounds):
        mean = {name: torch.zeros_like(value) for name, value in net.state_dict().items()}
        for client, images in enumerate(data.images):
            if relabeler.due(index, last[client]):
                with torch.no_grad():
                    result = relabeler.relabel_logits(client, index, net(images), data.labels[client])
                labels[client], last[client] = result.labels, result.refresh
            local = copy.deepcopy(net)
            fit(local, images, labels[client], seed, index, client)
            for name, value in local.state_dict().items():
                mean[name] += value * (len(images) / total)
        net.load_state_dict(mean)
    changed = sum(int((new != own).sum()) for new, own in zip(labels, data.labels, strict=True))
    return accuracy(net, data), changed


def show(title: str, accuracies: dict[str, float], changed: int) -> None:
    """One line of the comparison."""
    print(
        f"{title:<18}", *(f"{name} {100 * value:5.1f}" for name, value in accuracies.items()), f"relabelled {changed}"
    )


def arguments(description: str) -> argparse.Namespace:
    """Rounds, T, tau and seed from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--start", type=int, default=32, help="T: completed rounds before relabelling")
    parser.add_argument("--tau", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def compare(description: str, run: Callable[[Digits, Relabeler, int, int], tuple[dict[str, float], int]]) -> None:
    """Both lines of the comparison, by whatever runs the rounds as `federated` does."""
    given = arguments(description)
    torch.set_num_threads(1)
    digits = Digits(given.seed)
    for title, tau in (("FedAvg", 0.0), ("FedAvg + FedReLa", given.tau)):
        relabeler = Relabeler(tau=tau, start=given.start, seed=given.seed)
        show(title, *run(digits, relabeler, given.rounds, given.seed))


if __name__ == "__main__":
    compare("FedAvg on digits without and with FedReLa, in plain PyTorch", federated)
