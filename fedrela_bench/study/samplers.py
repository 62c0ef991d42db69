"""Samplers by name, checked before anything starts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedrela_bench.config import unknown_name
from fedrela_bench.errors import ConfigError

if TYPE_CHECKING:
    from fedrela_bench.study.space import Space

SAMPLERS = ("tpe", "nsga2", "gp", "random", "grid")
NEEDS = {"gp": ("torch", "scipy")}


def check_sampler(name: str, space: Space) -> None:
    """Raise ConfigError when a sampler is unknown, lacks a package, or cannot search this space."""
    if name not in SAMPLERS:
        raise ConfigError(unknown_name("sampler", name, name, SAMPLERS))
    missing = [package for package in NEEDS.get(name, ()) if find_spec(package) is None]
    if missing:
        raise ConfigError(f"sampler {name} needs {', '.join(missing)}; install it or use --sampler tpe")
    if name == "gp" and any(parameter.when for parameter in space.parameters):
        raise ConfigError("sampler gp draws parameters with `when` at random; use --sampler tpe, or leave `when` out")
    if name == "grid" and space.size() is None:
        raise ConfigError("sampler grid needs a step or choices for every parameter; add steps or use --sampler tpe")


def build_sampler(name: str, seed: int) -> Any:
    """The Optuna sampler; `grid` draws its points from the ledger and needs none of its own."""
    import warnings

    import optuna

    if name == "tpe":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)
