"""Checks of a model: shapes, first values, gradients, and a short federated run."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedrela_bench.models import Net, build_backbone, materialize
from fedrela_bench.models.passes import MODES, forward_faults, random_fault, size_of
from fedrela_bench.rng import generator
from fedrela_bench.simulation import Simulation
from fedrela_bench.testing import states, toys
from fedrela_bench.testing.rules import Check, require

CLASSES = 3


@dataclass(frozen=True)
class Network:
    """A registered model for images of one shape."""

    name: str
    input_shape: tuple[int, int, int]
    norm: str = "batch"

    @property
    def title(self) -> str:
        """For messages."""
        return f"model {self.name} for images of {size_of(self.input_shape)}"

    def net(self, seed: int = 1, dtype: torch.dtype = torch.float32) -> Net:
        """The network with a linear head and its first values."""
        backbone = build_backbone(self.name, self.input_shape, self.norm)
        net = Net(backbone, nn.Linear(backbone.feature_dim, CLASSES, device="meta"))
        materialize(net, generator(seed, "init"), dtype=dtype)
        return net

    def images(self, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """(count, C, H, W) numbers around 0."""
        values = np.random.default_rng(0).normal(size=(count, *self.input_shape))
        return torch.from_numpy(values).to(dtype)


def network(name: str, input_shape: tuple[int, int, int], norm: str = "batch") -> Network:
    """What to check.

    Raises:
        ConfigError: unknown model, or one that cannot be built for such images.
    """
    build_backbone(name, input_shape, norm)
    return Network(name, input_shape, norm)


def is_built_without_memory(subject: Network) -> None:
    """On the meta device."""
    backbone = build_backbone(subject.name, subject.input_shape, subject.norm)
    tensors = [*backbone.named_parameters(), *backbone.named_buffers()]
    real = [name for name, tensor in tensors if not tensor.is_meta]
    require(not real, f"{', '.join(real[:3])} have memory after building")
    require(isinstance(backbone.feature_dim, int) and backbone.feature_dim > 0, f"feature_dim {backbone.feature_dim}")


@torch.no_grad()
def gives_features(subject: Network) -> None:
    """In both modes, for several batch sizes and types."""
    for dtype in (torch.float32, torch.float64):
        net = subject.net(dtype=dtype)
        faults = forward_faults(subject.title, net.backbone, subject.input_shape, dtype)
        require(not faults, "; ".join(faults))
        for training, count in MODES:
            features = net.train(training).backbone(subject.images(count, dtype))
            told = f"{'train' if training else 'eval'} mode, batch of {count}, {dtype}"
            require(torch.isfinite(features).all(), f"{told}: features are not finite")


def starts_by_its_seed(subject: Network) -> None:
    """First values of equal and of different seeds."""
    first, again, other = (subject.net(seed) for seed in (1, 1, 2))
    numbers = [states.named_tensors(net) for net in (first, again, other)]
    differs = states.differing(numbers[0], numbers[1])
    require(not differs, f"{differs} differ between two networks of one seed")
    require(not states.same(numbers[0], numbers[2]), "two seeds give the same first values")
    wide = states.named_tensors(subject.net(1, torch.float64))
    narrowed = {name: value.to(numbers[0][name].dtype) for name, value in wide.items()}
    differs = states.differing(numbers[0], narrowed)
    require(not differs, f"{differs} start differently in float64")


def draws_nothing(subject: Network) -> None:
    """Two training steps from one state."""
    before, outputs = torch.get_rng_state(), []
    for _ in range(2):
        net = subject.net()
        net.train()
        outputs.append(net(subject.images(4)).logits)
    require(torch.equal(torch.get_rng_state(), before), random_fault(subject.title, net.backbone))
    require(torch.equal(outputs[0], outputs[1]), "two forward passes of the same values in training differ")


def gets_gradients(subject: Network) -> None:
    """One backward pass."""
    net = subject.net(dtype=torch.float64)
    net.train()
    nn.functional.cross_entropy(net(subject.images(6, torch.float64)).logits, torch.arange(6) % CLASSES).backward()  # type: ignore[no-untyped-call]
    missing = [name for name, parameter in net.named_parameters() if parameter.grad is None]
    require(not missing, f"{', '.join(missing[:3])} get no gradient")
    wrong = [name for name, parameter in net.named_parameters() if not torch.isfinite(_slope(parameter)).all()]
    require(not wrong, f"the gradients of {', '.join(wrong[:3])} are not finite")


def _slope(parameter: nn.Parameter) -> Tensor:
    return parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)


def travels(subject: Network) -> None:
    """Pickled, as worker processes get it."""
    net = subject.net()
    copy = pickle.loads(pickle.dumps(net))
    with torch.no_grad():
        outputs = [some.train(False)(subject.images(2)).logits for some in (net, copy)]
    require(torch.equal(outputs[0], outputs[1]), "a copy in another process gives other numbers")


def trains_in_a_federation(subject: Network) -> None:
    """Two rounds of three clients, whole and resumed; relabelled after the first."""
    channels, height, width = subject.input_shape
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 0, 0, 1, 0, 2])
    images = np.random.default_rng(0).integers(0, 255, (12, height, width, channels)).astype(np.uint8)
    images[np.arange(12), labels % height] //= 2
    data = toys.dataset(labels, [range(4), range(4, 8), range(8, 12)], CLASSES, images, test_images=images[:CLASSES])
    training = {"model": subject.name, "norm": subject.norm, "dtype": "float32", "local_epochs": 1, "batch_size": 4}
    trial = toys.config(federation={"rounds": 2}, training={**training, "lr": 0.01}, relabel={"tau": 0.3, "start": 1})
    whole, results = toys.run(trial, data)
    require(whole.status == "completed", f"the run {whole.status}; a smaller learning rate may help")
    part = Simulation(trial, data)
    part.run_round()
    again = Simulation(trial, data)
    again.restore(part.snapshot())
    list(again)
    differs = states.differing(states.parts(again.snapshot()), states.parts(whole.snapshot()))
    require(not differs, f"resumed after the first round, {differs} differ")
    require(np.isfinite(results[-1].metrics["train/loss"]), "the loss is not finite")


RANDOM = "leave out dropout and stochastic depth, and keep nothing between forward passes but running statistics"
NETWORK = (
    Check(
        "structure",
        "A model is built without memory, on torch's meta device, and says how many features it has.",
        "make tensors with nn.Parameter, register_buffer or layers, without device=; pass feature_dim to Backbone",
        is_built_without_memory,
    ),
    Check(
        "features",
        "Images (B, C, H, W) become finite features (B, feature_dim) in both modes, float32 and float64.",
        "pool and flatten at the end, and make constants with the dtype of the input",
        gives_features,
    ),
    Check(
        "first-values",
        "First values depend on the run's seed alone, and on every dtype they are the same.",
        "let materialize fill convolutions, linear layers and norms; a layer with parameters of its own has "
        "reset(rng), which draws from rng",
        starts_by_its_seed,
    ),
    Check("random", "A forward pass draws no random numbers.", RANDOM, draws_nothing),
    Check(
        "gradients",
        "Every parameter gets a finite gradient.",
        "remove layers that forward does not use, or use them",
        gets_gradients,
    ),
    Check(
        "processes",
        "A network can be sent to another process.",
        "define its classes at the top of a module, and keep no lambdas, files or locks in it",
        travels,
    ),
    Check(
        "federation",
        "A short federated run with relabelling ends, and resumed it gives the same bits.",
        RANDOM,
        trains_in_a_federation,
    ),
)
