"""Posteriors of the pass at T are computed once for all forks of a base run, and change no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrela_bench.simulation import PosteriorFolder, Simulation
from fedrela_bench.simulation.local import LocalWork
from tests.simulation import toy


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rounds in which a client's posterior was computed."""
    rounds: list[int] = []
    real = LocalWork.posterior

    def counted(work: LocalWork, client: int, index: int, refresh: int) -> Any:
        rounds.append(index)
        return real(work, client, index, refresh)

    monkeypatch.setattr(LocalWork, "posterior", counted)
    return rounds


def _trial(**relabel: Any) -> Any:
    federation = {"clients": 4, "rounds": 5, "participation": relabel.pop("participation", 1.0)}
    return toy.config(federation=federation, relabel={"tau": 0.3, "start": 2, **relabel})


def _run(trial: Any, store: PosteriorFolder | None) -> tuple[Simulation, Any]:
    simulation = Simulation(trial, toy.skewed(clients=4), posteriors=store)
    return simulation, toy.figures(list(simulation))


def test_forks_with_other_budgets_share_the_first_pass_only(tmp_path: Path, computed: list[int]) -> None:
    store = PosteriorFolder(tmp_path / "kept")
    _run(_trial(tau=0.1), store)
    assert computed == [2] * 4
    for relabel in ({"tau": 0.3}, {"tau": 0.2, "period": 1}, {"tau": 0.3, "sigma_floor": 1e-6}):
        computed.clear()
        shared, results = _run(_trial(**relabel), store)
        assert 2 not in computed
        assert computed == ([3] * 4 + [4] * 4 if "period" in relabel else [])
        alone, expected = _run(_trial(**relabel), None)
        assert results == expected and toy.same_model(shared, alone)


@pytest.mark.parametrize(
    "other", [{"start": 3}, {"posterior_scale": 2.0}, {"posterior_bn": "batch"}, {"author_resume": True}, {"seed": 4}]
)
def test_another_model_or_another_pass_is_computed_anew(
    tmp_path: Path, computed: list[int], other: dict[str, Any]
) -> None:
    store = PosteriorFolder(tmp_path)
    _run(_trial(), store)
    computed.clear()
    seed = other.pop("seed", None)
    trial = _trial(**other) if seed is None else _trial().replace({"seed": seed})
    shared, results = _run(trial, store)
    assert len(computed) == 4
    alone, expected = _run(trial, None)
    assert results == expected and toy.same_model(shared, alone)


def test_late_clients_see_a_later_model_and_are_never_taken_from_the_first_pass(
    tmp_path: Path, computed: list[int]
) -> None:
    store = PosteriorFolder(tmp_path)
    _run(_trial(participation=0.5, tau=0.1), store)
    late = [index for index in computed if index > 2]
    computed.clear()
    shared, results = _run(_trial(participation=0.5), store)
    assert computed == late and late
    alone, expected = _run(_trial(participation=0.5), None)
    assert results == expected and toy.same_model(shared, alone)


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None])
def test_a_damaged_file_counts_as_absent(tmp_path: Path, computed: list[int], damage: bytes | None) -> None:
    store = PosteriorFolder(tmp_path)
    _, expected = _run(_trial(), store)
    (file,) = tmp_path.glob("*.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    computed.clear()
    _, results = _run(_trial(), store)
    assert results == expected and len(computed) == 4
    assert file.read_bytes() == whole


def test_a_file_damaged_anywhere_is_absent_or_still_whole(tmp_path: Path) -> None:
    store, posteriors = PosteriorFolder(tmp_path), {0: np.eye(2), 3: np.full((1, 2), 0.5)}
    store.save("key", posteriors)
    whole = (tmp_path / "key.npz").read_bytes()
    for place in range(len(whole)):
        for flipped in (0x01, 0x20, 0xFF):
            damaged = bytearray(whole)
            damaged[place] ^= flipped
            (tmp_path / "key.npz").write_bytes(damaged)
            kept = store.load("key")
            shared = {} if kept is None else {client: kept[client] for client in kept.keys() & posteriors.keys()}
            assert all(np.array_equal(values, posteriors[client]) for client, values in shared.items())
    np.save(tmp_path / "key.npy", np.zeros(3))
    (tmp_path / "key.npy").rename(tmp_path / "key.npz")
    assert store.load("key") is None


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    _, results = _run(_trial(), PosteriorFolder(tmp_path / "file" / "kept"))
    _, expected = _run(_trial(), None)
    assert results == expected


def test_what_is_kept_is_each_clients_posterior(tmp_path: Path) -> None:
    store = PosteriorFolder(tmp_path)
    simulation, _ = _run(_trial(), store)
    (file,) = tmp_path.glob("*.npz")
    kept = store.load(file.stem)
    assert kept is not None and sorted(kept) == [0, 1, 2, 3]
    for client, posterior in kept.items():
        assert posterior.shape == (len(simulation.data.rows[client]), 4)
        np.testing.assert_allclose(posterior.sum(axis=1), 1)


def test_no_flipped_bit_is_read_as_other_numbers(tmp_path: Path) -> None:
    store, rng = PosteriorFolder(tmp_path), np.random.default_rng(0)
    store.save("key", {client: rng.random((5000, 10)) for client in range(2)})
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for place in (*range(0, 200, 7), *range(len(whole) - 300, len(whole), 11)):
        for bit in (0x01, 0x80):
            flipped = bytearray(whole)
            flipped[place] ^= bit
            file.write_bytes(flipped)
            assert store.load("key") is None
    file.write_bytes(whole)
    assert store.load("key") is not None
