"""FedReLa inside training code of your own: when a client relabels, by which draws, and what its labels become.

    relabeler = Relabeler(tau=0.05, start=40, seed=1)
    if relabeler.due(round, last):                                  # before the client trains in round 0, 1, 2, ...
        result = relabeler.relabel(client, round, posterior, labels)
        labels, last = result.labels, result.refresh

The uniforms are those of this package's simulator, keyed (seed, client, refresh), so that equal posteriors and labels
give equal new labels, whoever computed them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedrela_bench import relabel
from fedrela_bench.errors import ConfigError
from fedrela_bench.relabel.options import RelabelOptions
from fedrela_bench.relabel.result import Reallocation
from fedrela_bench.rng import generator

Array = TypeVar("Array", NDArray[Any], Tensor)
SUM_TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-3}
"""How far a row of probabilities may be from one, by bytes per value: 16-bit arithmetic rounds more."""
SEEDS = 2**32


def uniforms_of(seed: int, client: int, refresh: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draws from [0, 1) of a client's relabelling 0, 1, ..., of the simulator and of `Relabeler`."""
    return generator(seed, "relabel", client, refresh).random(shape)


@dataclass(frozen=True, eq=False)
class Relabelled(Generic[Array]):
    """One client's new labels.

    Attributes:
        labels: (n,) class ids, of the kind that was given.
        changed: (n,) bool, where they differ from those that were given.
        refresh: which relabelling this was: 0 in the rounds from T on, 1 from T + period on, ...
        details: thresholds, strength and the rest, see `Reallocation`.
    """

    labels: Array
    changed: Array
    refresh: int
    details: Reallocation[Array]

    @property
    def count(self) -> int:
        """How many labels changed."""
        return int(self.changed.sum())


class Relabeler:
    """FedReLa with the timing and the draws of this package's simulator; keeps nothing between calls.

    Args:
        tau: relabelling budget, a fraction of the local samples; 0 never relabels.
        start: T, completed rounds before the first relabelling.
        period: relabel again every so many rounds; 0: once.
        preset: ``paper`` (the equations as printed) or ``author`` (the released code), for options not given.
        seed: of the run.
        options: readings of the paper one by one, in place of a preset.

    Raises:
        ConfigError: every wrong argument in one message.
    """

    def __init__(
        self,
        tau: float = 0.05,
        start: int = 0,
        period: int = 0,
        preset: str = "paper",
        seed: int = 1,
        options: RelabelOptions | None = None,
    ) -> None:
        faults = _tau_faults(tau) + [
            fault
            for name, value in (("start", start), ("period", period), ("seed", seed))
            if (fault := _whole_fault(name, value))
        ]
        faults += [f"seed = {seed} must be below {SEEDS}"] if _is_whole(seed) and seed >= SEEDS else []
        try:
            self.options = RelabelOptions.preset(preset) if options is None else options
        except ConfigError as error:
            faults += error.faults
        if options is not None and not isinstance(options, RelabelOptions):
            faults.append(f"options = {options!r}: give RelabelOptions(...), or a preset alone")
        if faults:
            raise ConfigError(faults)
        self.tau, self.start, self.period, self.seed = float(tau), int(start), int(period), int(seed)

    def refresh(self, round: int) -> int | None:
        """Which relabelling is in force in a round (from 0): 0 from T on, 1 from T + period on, ...; None before T."""
        if self.tau == 0 or round < self.start:
            return None
        return (round - self.start) // self.period if self.period else 0

    def due(self, round: int, last: int | None = None) -> bool:
        """Whether a client relabels before it trains in a round.

        Args:
            round: completed rounds before this one.
            last: `Relabelled.refresh` of the client's last relabelling, None if there was none. A client that was away
                at T relabels when it next takes part.
        """
        now = self.refresh(round)
        return now is not None and (last is None or last < now)

    def uniforms(self, client: int, round: int, shape: tuple[int, int]) -> NDArray[np.float64]:
        """(n, C) draws from [0, 1) of the simulator's stream (seed, client, refresh).

        Raises:
            ConfigError: a round before T, or a client that is no whole number.
        """
        faults = [
            fault for name, value in (("client_id", client), ("round", round)) if (fault := _whole_fault(name, value))
        ]
        refresh = None if faults else self.refresh(round)
        if not faults and refresh is None:
            faults = [f"nothing is relabelled in round {round} ({self._when()}); ask due(round) first"]
        if faults or refresh is None:
            raise ConfigError(faults)
        return uniforms_of(self.seed, int(client), refresh, shape)

    @overload
    def relabel(self, client_id: int, round: int, posterior: Tensor, labels: Any) -> Relabelled[Tensor]: ...
    @overload
    def relabel(self, client_id: int, round: int, posterior: ArrayLike, labels: Any) -> Relabelled[NDArray[Any]]: ...

    def relabel(self, client_id: int, round: int, posterior: Any, labels: Any) -> Relabelled[Any]:
        """New labels of one client (FedReLa, eqs. (2)-(8), Algorithm 1).

        Args:
            client_id: 0, 1, 2, ...; keys the draws.
            round: completed rounds before this one.
            posterior: (n, C) class probabilities of the client's samples under the global model, un-augmented and in
                eval mode; a numpy array, or a tensor, which stays on its device.
            labels: (n,) the client's own labels, in the same order: those of its data, also at a second relabelling.

        Raises:
            ConfigError: no probabilities, wrong sizes, labels out of range, or a round before T; every fault named.
        """
        given = posterior if isinstance(posterior, Tensor) else np.asarray(posterior)
        _require(_probability_faults(given))
        return self._reallocated(client_id, round, given, labels)

    @overload
    def relabel_logits(self, client_id: int, round: int, logits: Tensor, labels: Any) -> Relabelled[Tensor]: ...
    @overload
    def relabel_logits(
        self, client_id: int, round: int, logits: ArrayLike, labels: Any
    ) -> Relabelled[NDArray[Any]]: ...

    def relabel_logits(self, client_id: int, round: int, logits: Any, labels: Any) -> Relabelled[Any]:
        """As `relabel`, from (n, C) scores of the last layer: their softmax, in float64, is the posterior."""
        given = logits if isinstance(logits, Tensor) else np.asarray(logits)
        _require(_table_faults("logits", given) or _finite_faults("logits", given))
        scores = given.detach() if isinstance(given, Tensor) else torch.from_numpy(np.array(given, dtype=np.float64))
        posterior = scores.double().softmax(dim=1)
        return self._reallocated(
            client_id, round, posterior if isinstance(given, Tensor) else posterior.numpy(), labels
        )

    def _reallocated(self, client_id: int, round: int, posterior: Any, labels: Any) -> Relabelled[Any]:
        own = labels if isinstance(labels, Tensor | np.ndarray) else np.asarray(labels)
        uniforms = self.uniforms(client_id, round, tuple(posterior.shape))
        made = relabel.reallocate(posterior, own, self.tau, uniforms, self.options, diagnostics=False)
        refresh = cast(int, self.refresh(round))
        return Relabelled(made.labels, made.changed, refresh, made)

    def _when(self) -> str:
        return "tau = 0" if self.tau == 0 else f"the first relabelling is before round {self.start}, counted from 0"


def _require(faults: list[str]) -> None:
    if faults:
        raise ConfigError(faults)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _whole_fault(name: str, value: Any) -> str | None:
    if _is_whole(value):
        return None if value >= 0 else f"{name} = {value} must be at least 0"
    hint = "; a fraction of the rounds must be multiplied out" if name == "start" and isinstance(value, float) else ""
    return f"{name} = {value!r} must be a whole number from 0{hint}"


def _tau_faults(tau: Any) -> list[str]:
    if isinstance(tau, bool) or not isinstance(tau, int | float | np.number) or not math.isfinite(tau):
        return [f"tau = {tau!r} must be a number from 0 to 1"]
    if 0 <= tau <= 1:
        return []
    return [f"tau = {tau} is a fraction from 0 to 1" + (f"; did you mean {tau / 100:g}?" if tau > 1 else "")]


def _table_faults(name: str, given: Any) -> list[str]:
    shape = tuple(given.shape)
    if len(shape) != 2 or shape[1] == 0:
        return [f"{name} has shape {shape}; give one row per sample and one column per class"]
    kind = given.is_floating_point() if isinstance(given, Tensor) else given.dtype.kind == "f"
    return [] if kind else [f"{name} is of type {given.dtype}; give floating-point numbers"]


def _finite_faults(name: str, given: Any) -> list[str]:
    finite = bool(torch.isfinite(given).all()) if isinstance(given, Tensor) else bool(np.isfinite(given).all())
    return [] if finite else [f"{name} holds values that are not finite; the model has diverged"]


def _probability_faults(given: Any) -> list[str]:
    faults = _table_faults("posterior", given)
    if faults or not len(given):
        return faults
    values = given.detach().double().cpu().numpy() if isinstance(given, Tensor) else given.astype(np.float64)
    if faults := _finite_faults("posterior", values):
        return faults
    size = given.element_size() if isinstance(given, Tensor) else given.itemsize
    off = np.abs(values.sum(axis=1) - 1) > SUM_TOLERANCE.get(size, 1e-3)
    wrong = np.flatnonzero(off | (values < 0).any(axis=1))
    if not wrong.size:
        return []
    row = values[wrong[0]]
    return [
        f"{wrong.size} of {len(values)} rows of the posterior are no probabilities (row {wrong[0]} sums to "
        f"{row.sum():.4g}, its smallest value is {row.min():.4g}); are these logits? give them to relabel_logits"
    ]
