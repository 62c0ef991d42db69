"""The global model of a run as a predictor of its own: parameters, whatever else its score needs, and normalisation.

The file is what MLflow's ``python_function`` flavour loads (`_load_pyfunc`); neither dataset nor study is needed. Fed
with all test images in order it repeats the run's confusion matrix: batches and arithmetic are the simulation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedrela_bench.algorithms import Server
from fedrela_bench.config import parse
from fedrela_bench.data.transforms import Pipeline
from fedrela_bench.errors import ConfigError
from fedrela_bench.models import materialize
from fedrela_bench.plugins import Plugin, only, used
from fedrela_bench.rng import generator
from fedrela_bench.simulation.devices import usable_device
from fedrela_bench.simulation.evaluate import Evaluator
from fedrela_bench.simulation.flat import FlatModel
from fedrela_bench.simulation.precision import DTYPES, set_arithmetic
from fedrela_bench.simulation.sealed import read_values, write_values
from fedrela_bench.simulation.setup import build_network

if TYPE_CHECKING:
    from fedrela_bench.simulation.loop import Simulation

KIND = "model"
OUTPUTS = ("label", "logits")


@dataclass(frozen=True)
class ScoredModel:
    """What is needed to score images as a run does after `round` rounds; tensors are copies on the CPU."""

    config: dict[str, Any]
    """`TrialConfig` as JSON."""
    round: int
    input_shape: tuple[int, int, int]
    """(C, H, W)."""
    class_names: tuple[str, ...]
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None
    params: Tensor
    buffers: Tensor
    counters: list[Tensor]
    constants: dict[str, Tensor]
    """Buffers that never change, such as an ETF; drawing them again might differ in the last digit elsewhere."""
    server_state: dict[str, Tensor]
    client_sizes: list[int]
    is_table: bool = False
    """Whether it takes standardised rows as float32, not images."""
    plugins: tuple[dict[str, Any], ...] = ()
    """`Plugin` as plain values: code of the user's own that the configuration names."""

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)


def scored_model(simulation: Simulation) -> ScoredModel:
    """The global model of a simulation between two rounds."""
    state, dataset, model = simulation.state, simulation.dataset, simulation.model
    config = simulation.config.model_dump(mode="json")
    return ScoredModel(
        config=config,
        round=state.completed_rounds,
        input_shape=dataset.input_shape,
        class_names=tuple(dataset.class_names),
        normalization=dataset.normalization,
        params=_copy(state.server.params),
        buffers=_copy(state.server.buffers),
        counters=[_copy(counter) for counter in state.counters],
        constants={name: _copy(value) for name, value in _constants(model, simulation.algorithm.scope).items()},
        server_state={name: _copy(value) for name, value in state.server.state.items()},
        client_sizes=[int(size) for size in state.server.client_sizes],
        is_table=dataset.is_table,
        plugins=tuple(asdict(replace(plugin, path=plugin.given)) for plugin in used(config)),
    )


def save_model(path: Path, model: ScoredModel) -> None:
    """Write one file, atomically, with its digest.

    Raises:
        StoreError: the file cannot be written.
    """
    write_values(path, KIND, asdict(model))


def load_model(path: Path) -> ScoredModel:
    """Read a model and check it against its digest.

    Raises:
        StoreError: missing, damaged or written by another version.
    """
    return read_values(path, KIND, ScoredModel)


class Predictor:
    """A `ScoredModel` at work.

    Args:
        model: from `scored_model` or `load_model`.
        device: such as ``cpu`` or ``cuda``; bits are those of the run on the kind of device that computed it.

    Raises:
        ConfigError: the algorithm or network is not registered here; import the module that registers it.
    """

    def __init__(self, model: ScoredModel, device: str = "cpu") -> None:
        self.model = model
        self.config = parse(model.config)
        place = usable_device(device)
        dtype = DTYPES[self.config.training.dtype]
        carried = [Plugin(**values) for values in model.plugins]
        with only(carried) if carried else nullcontext():
            self.algorithm, net = build_network(self.config, model)
            materialize(net, generator(self.config.seed, "init"), place, dtype)
        self.flat = FlatModel(net, self.algorithm.scope)
        for name, live in _constants(self.flat, self.algorithm.scope).items():
            live.copy_(model.constants[name])
        self.server = Server(
            params=model.params.to(place),
            buffers=model.buffers.to(place),
            state={name: value.to(place) for name, value in model.server_state.items()},
            client_sizes=np.array(model.client_sizes),
            num_classes=model.num_classes,
            seed=self.config.seed,
            round=max(0, model.round - 1),
        )
        self.pipeline = Pipeline(model.normalization, "none", dtype, model.is_table)

    def scores(self, images: np.ndarray) -> Tensor:
        """(n, C) scores on the device, whose argmax is the prediction.

        Args:
            images: (n, H, W, C) uint8, as they are in the dataset; of a table (n, 1, D, 1) float32, standardised.

        Raises:
            ConfigError: images of another shape or type.
        """
        device = self.server.params.device
        pixels = torch.from_numpy(self._checked(images)).to(device)
        if not len(pixels):
            return torch.empty((0, self.model.num_classes), dtype=self.server.params.dtype)
        set_arithmetic(self.config.training.tf32, device)
        # Some heads keep batch statistics at the test, which changes the live values.
        self.flat.load(self.server.params, self.server.buffers)
        for live, value in zip(self.flat.counters, self.model.counters, strict=True):
            live.copy_(value)
        evaluator = Evaluator(pixels, self.pipeline, self.config.training.amp)
        return evaluator.scores(self.flat, self.algorithm, self.server)

    def predict(self, images: np.ndarray, params: Mapping[str, Any] | None = None) -> np.ndarray:
        """(n,) int64 class ids, or with ``params = {"output": "logits"}`` (n, C) scores.

        Raises:
            ConfigError: images of another shape or type, or another output.
        """
        wanted = (params or {}).get("output", OUTPUTS[0])
        if wanted not in OUTPUTS:
            raise ConfigError(f"output {wanted} is unknown; valid: {', '.join(OUTPUTS)}")
        scores = self.scores(images)
        if wanted == "label":
            return scores.argmax(dim=1).cpu().numpy()
        return (scores.float() if scores.dtype == torch.bfloat16 else scores).cpu().numpy()

    def _checked(self, images: np.ndarray) -> np.ndarray:
        channels, height, width = self.model.input_shape
        array, wanted = np.asarray(images), np.dtype(np.float32 if self.model.is_table else np.uint8)
        if array.shape[1:] != (height, width, channels) or array.dtype != wanted:
            what = "standardised rows" if self.model.is_table else "pixels, neither scaled nor normalised"
            raise ConfigError(
                f"the model takes (n, {height}, {width}, {channels}) {wanted}, not {array.shape} {array.dtype}; "
                f"give the dataset's {what}"
            )
        return np.array(array, order="C")


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Predictor:
    """What MLflow calls; ``model_config={"device": "cuda"}`` serves from a GPU."""
    return Predictor(load_model(Path(path)), (model_config or {}).get("device", "cpu"))


def _constants(model: FlatModel, scope: Any) -> dict[str, Tensor]:
    return {name: value for name, value in model.net.named_buffers() if scope(name) == "constant"}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
