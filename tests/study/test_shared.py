"""The roll call of a cluster's nodes: who does not see the study, who is only slow, and who is no longer there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrela_bench.errors import RunError, StoreError
from fedrela_bench.study import shared

SEES, BLIND, DIES = "sees", "blind", "dies"


@dataclass
class Nodes:
    """Nodes as a script has them, on a clock that only waiting moves."""

    script: dict[str, list[tuple[float, str]]]
    """What each node answers, and after how many seconds; one item for every time it is asked."""
    deaths: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    asked: dict[int, tuple[float, str, Any]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def living(self) -> dict[str, str]:
        return {node: f"host-{node}" for node in self.script if self.now < self.deaths.get(node, math.inf)}

    def ask(self, node: str, tokens: Any) -> int:
        seconds, answer = self.script[node].pop(0)
        self.asked[len(self.asked)] = (self.now + seconds, answer, list(tokens))
        return len(self.asked) - 1

    def finished(self, calls: list[int]) -> list[int]:
        self.sleep(1.0)
        return [call for call in calls if self.asked[call][0] <= self.now]

    def answer(self, call: int) -> Any:
        _, answer, tokens = self.asked[call]
        if answer == SEES:
            return shared.sees(tokens)
        return {BLIND: [False] * len(tokens), DIES: None}.get(answer, answer)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def call_roll(monkeypatch: pytest.MonkeyPatch, nodes: Nodes, *folders: Path, stopping: Any = lambda: False) -> None:
    for name in ("living", "ask", "finished", "answer"):
        monkeypatch.setattr(shared, f"_{name}", getattr(nodes, name))
    monkeypatch.setattr(shared, "time", SimpleNamespace(monotonic=lambda: nodes.now, sleep=nodes.sleep))
    shared.prove_shared(folders, nodes.told.append, stopping)


def test_nodes_that_see_the_folders_are_asked_once_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(3, SEES)]})
    call_roll(monkeypatch, nodes, tmp_path, tmp_path)
    assert len(nodes.asked) == 2 and nodes.told == [] and not list(tmp_path.iterdir())
    assert len(nodes.asked[0][2]) == 1, "a folder given twice is looked at once"


def test_a_single_node_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": []})
    call_roll(monkeypatch, nodes, tmp_path)
    assert nodes.asked == {}


def test_a_blind_node_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(2, BLIND)], "c": [(math.inf, SEES)]})
    (tmp_path / "x").mkdir()
    with pytest.raises(StoreError) as caught:
        call_roll(monkeypatch, nodes, tmp_path, tmp_path / "x")
    assert str(caught.value).splitlines() == [
        f"{folder} is not visible on host-b; choose one that all nodes share" for folder in (tmp_path, tmp_path / "x")
    ]
    assert nodes.now < 5


def test_a_slow_node_is_waited_for_with_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(280, SEES)]})
    call_roll(monkeypatch, nodes, tmp_path)
    assert nodes.told == ["waiting for host-b to say whether the study's folder is visible there (a busy node is slow)"]


def test_a_node_that_died_meanwhile_is_no_part_of_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Nodes({"a": [(1, SEES)], "b": [(math.inf, SEES)]}, deaths={"b": 20})
    call_roll(monkeypatch, silent, tmp_path)
    assert 20 <= silent.now < 25
    failing = Nodes({"a": [(1, SEES)], "b": [(1, DIES)] * 50}, deaths={"b": 20})
    call_roll(monkeypatch, failing, tmp_path)
    assert 20 <= failing.now < 25


def test_a_living_node_that_says_nothing_is_not_called_blind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(math.inf, SEES)]})
    with pytest.raises(StoreError) as caught:
        call_roll(monkeypatch, nodes, tmp_path)
    assert f"host-b did not say within 300 s whether {tmp_path} is visible there; look at" in str(caught.value)
    assert "not visible" not in str(caught.value) and len(nodes.told) == 1


def test_a_process_that_dies_on_a_living_node_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(1, DIES), (1, DIES), (1, SEES)]})
    call_roll(monkeypatch, nodes, tmp_path)
    assert len(nodes.asked) == 4


def test_a_node_without_the_package_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(1, "ModuleNotFoundError: No module named 'fedrela_bench'")]})
    with pytest.raises(RunError, match=r"^host-b cannot run a study \(ModuleNotFoundError: .*same packages$"):
        call_roll(monkeypatch, nodes, tmp_path)


def test_a_stop_request_ends_the_roll_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes({"a": [(1, SEES)], "b": [(math.inf, SEES)]})
    call_roll(monkeypatch, nodes, tmp_path, stopping=lambda: nodes.now >= 3)
    assert nodes.now < 5 and not list(tmp_path.iterdir())


def test_a_file_of_another_study_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("other")
    assert shared.sees([str(tmp_path / "token"), str(tmp_path / "absent"), str(tmp_path)]) == [False] * 3
