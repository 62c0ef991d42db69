"""Small federations, states as comparable values, and one client's local training, as the tests call them."""

from __future__ import annotations

from fedrela_bench.testing.states import (
    Left,
    Run,
    begin,
    copied,
    floats,
    named,
    parts,
    same,
    through_file,
    train,
    trial,
    twin_of,
    whole_run,
)
from fedrela_bench.testing.toys import Perceptron, equal_clients, odd_clients, single_client
from fedrela_bench.testing.toys import four_clients as skewed

__all__ = [
    "Left",
    "Perceptron",
    "Run",
    "begin",
    "copied",
    "equal_clients",
    "floats",
    "named",
    "odd_clients",
    "parts",
    "same",
    "single_client",
    "skewed",
    "through_file",
    "train",
    "trial",
    "twin_of",
    "whole_run",
]
