"""Differential privacy of a run: what is refused, the client-level mechanism, and what a finished run guarantees.

Level `sample` is DP-SGD in every client (Abadi et al., "Deep Learning with Differential Privacy", CCS 2016; the steps
are in `private_steps`). Level `client` is DP-FedAvg with a trusted server (McMahan, Ramage, Talwar and Zhang, "Learning
Differentially Private Recurrent Language Models", ICLR 2018, Algorithm 1) with equal weights and a fixed number of
clients a round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.algorithms import Algorithm
from fedrela_bench.config import PrivacyConfig, TrialConfig
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import Net
from fedrela_bench.nested import Json
from fedrela_bench.rng import generator
from fedrela_bench.simulation.accountant import epsilon
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.participation import participants_of

MESSAGES = ("new_sums", "accumulate", "server_step", "probe", "probe_clients", "receive", "server_probe")
"""Hooks through which something besides the model leaves a client, or is combined in another way than a mean."""
LOCAL = ("prepare", "epoch_rows", "draw", "inputs", "loss", "criterion")
"""Hooks that can make one sample's gradient depend on others."""
FEW = 1e-12
"""Norms are not divided by less."""


def require_protected(config: TrialConfig, algorithm: Algorithm, net: Net) -> None:
    """Refuse what the mechanism does not cover.

    Raises:
        ConfigError: batch norm, messages besides the model, losses that mix samples, arithmetic that is not supported;
            every fault with its remedy.
    """
    if config.privacy.clip is not None and (faults := list(_uncovered(config, algorithm, net))):
        raise ConfigError(faults)


def _uncovered(config: TrialConfig, algorithm: Algorithm, net: Net) -> Iterator[str]:
    kind, level = type(algorithm), config.privacy.level
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules()):
        yield (
            "privacy: the network has batch norm, which mixes samples and sends running statistics without noise; set "
            "training.norm = group, or choose a network without it such as lenet"
        )
    if sent := _overridden(kind, MESSAGES):
        yield (
            f"privacy: {algorithm.name} sends or combines more than the clipped model ({', '.join(sent)}), which gets "
            "no noise; use an algorithm such as fedavg or fedprox, or leave privacy.clip out"
        )
    if level == "sample" and not kind.separable and (mixed := _overridden(kind, LOCAL)):
        yield (
            f"privacy: {algorithm.name} changes local training ({', '.join(mixed)}), so that a sample's gradient may "
            "depend on other samples and labels; use fedavg, fedprox or fedfocal, or privacy.level = client"
        )
    if level == "sample" and config.training.amp != "none":
        yield f"privacy: training.amp = {config.training.amp} has no gradients per sample; set it to none"
    if config.relabel.author_resume:
        yield "privacy: relabel.author_resume repeats a round that would not be accounted for; set it to false"


def _overridden(kind: type[Algorithm], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(kind, name) is not getattr(Algorithm, name)]


# level client --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def clip_update(model: FlatModel, start: Tensor, privacy: PrivacyConfig) -> None:
    """Pull the live parameters back towards `start` (P,) until what is sent has moved by at most `clip` (2-norm)."""
    assert privacy.clip is not None
    spans = [piece.span for piece in model.param_pieces if piece.scope == "shared"]
    square = sum((((model.params[span] - start[span]) ** 2).sum() for span in spans), torch.zeros_like(start[:0].sum()))
    factor = (privacy.clip / square.sqrt().clamp(min=FEW)).clamp(max=1)
    if factor < 1:
        for span in spans:
            model.params[span] = start[span] + factor * (model.params[span] - start[span])


def client_noise(config: TrialConfig, params: Tensor, clients: int, index: int) -> Tensor:
    """(P,) noise on the mean over `clients` clipped updates, keyed by seed and round."""
    assert config.privacy.clip is not None
    scale = config.privacy.noise_multiplier * config.privacy.clip / clients
    return scale * normals(generator(config.seed, "privacy", index), params)


def normals(rng: np.random.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers of a tensor's shape, type and device, drawn on the CPU."""
    return torch.from_numpy(rng.standard_normal(tuple(like.shape))).to(like)


# account -------------------------------------------------------------------------------------------------------------


def steps_of(config: TrialConfig, samples: int) -> tuple[float, int]:
    """Sampling rate of a step, and steps in one round of a client of so many samples, as the accountant counts them.

    Level client: one step a round, no sampling. Shuffled epochs: a sample is in one batch an epoch, so that an epoch is
    one step without sampling.
    """
    privacy, training = config.privacy, config.training
    if privacy.level == "client":
        return 1.0, 1
    if privacy.sampling == "shuffle":
        return 1.0, training.local_epochs
    return min(1.0, training.batch_size / samples), training.local_epochs * math.ceil(samples / training.batch_size)


def epsilons(config: TrialConfig, client_sizes: np.ndarray, rounds: int) -> np.ndarray:
    """(K,) epsilon of each client at `privacy.delta` after so many rounds, labels taken as given.

    Composed over the rounds in which a client takes part; who takes part is taken as known, so that it hides nothing.
    """
    taken = np.zeros(len(client_sizes), dtype=np.int64)
    for index in range(rounds):
        taken[participants_of(config, client_sizes, index)] += 1
    known: dict[tuple[int, int], float] = {}
    for size, count in {(int(size), int(count)) for size, count in zip(client_sizes, taken, strict=True)}:
        rate, steps = steps_of(config, max(size, 1))
        known[size, count] = epsilon(rate, config.privacy.noise_multiplier, steps * count, config.privacy.delta)
    return np.array([known[int(size), int(count)] for size, count in zip(client_sizes, taken, strict=True)])


def account(config: TrialConfig, client_sizes: np.ndarray, rounds: int) -> Json:
    """What a run of so many rounds guarantees; None stands for no guarantee.

    Relabelling makes a sample's label depend on the other samples of its client. At level sample the guarantee of the
    whole run therefore ends at T: `epsilon` is then None, `epsilon_before_relabelling` that of the first T rounds, and
    `epsilon_labels_given` what it would be if the new labels were public. At level client it holds as it stands.
    """
    privacy, fork = config.privacy, config.relabel_round
    whole = _largest(config, client_sizes, rounds)
    values = {**privacy.model_dump(mode="json"), "rounds": rounds, "clients": int(np.count_nonzero(client_sizes))}
    if privacy.level == "client" or config.relabel.tau == 0 or rounds <= fork:
        return {**values, "epsilon": whole}
    before = _largest(config, client_sizes, fork)
    return {**values, "epsilon": None, "epsilon_before_relabelling": before, "epsilon_labels_given": whole}


def _largest(config: TrialConfig, client_sizes: np.ndarray, rounds: int) -> float | None:
    value = float(epsilons(config, client_sizes, rounds).max(initial=0.0))
    return round(value, 6) if math.isfinite(value) else None
