"""Whether all nodes of a cluster see the folders of a study, asked before anything is computed there."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrela_bench.errors import RunError, StoreError

NOTICE_SECONDS = 15.0
"""A wait that lasts longer is explained."""
PATIENCE_SECONDS = 300.0
"""A node must start a process to answer; it starts one after the other, and a busy one takes half a minute for each."""
PAUSE_SECONDS = 1.0


def prove_shared(
    folders: Sequence[Path],
    tell: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Show that every node of a cluster sees a study's folders. A node that dies meanwhile is no part of the proof.

    Args:
        folders: that exist here.
        tell: receives a sentence when nodes are slow to answer.
        stopping: whether to give up asking, without an error.

    Raises:
        StoreError: nodes do not see a folder, or do not answer for minutes, by name.
        RunError: nodes cannot run this package at all.
    """
    names = _living()
    if len(names) < 2:
        return
    folders = list(dict.fromkeys(folders))
    with _tokens(folders) as tokens:
        answers, silent = _collect(names, tokens, tell, stopping)
    broken = {node: answer for node, answer in answers.items() if isinstance(answer, str)}
    if broken:
        reason = next(iter(broken.values()))
        raise RunError(f"{_hosts(names, broken)} cannot run a study ({reason}); give all nodes the same packages")
    faults = [_blind(names, folder, answers, place) for place, folder in enumerate(folders)]
    if silent:
        faults.append(
            f"{_hosts(names, silent)} did not say within {PATIENCE_SECONDS:.0f} s whether {_listed(folders)} is visible"
            " there; look at `ray status`, take what hangs out of the cluster, and repeat the command"
        )
    if any(faults):
        raise StoreError("\n".join(filter(None, faults)))


def _collect(
    names: Mapping[str, str], tokens: Sequence[str], tell: Callable[[str], None], stopping: Callable[[], bool]
) -> tuple[dict[str, Any], list[str]]:
    """What each node answered (what it sees, or why it cannot run anything), and the living ones that did not."""
    began, told = time.monotonic(), False
    answers: dict[str, Any] = {}
    calls = {_ask(node, tokens): node for node in names}
    while calls and not stopping():
        for call in _finished(list(calls)):
            node = calls.pop(call)
            answers[node] = _answer(call)
        living = _living()
        # A process that died on a living node is no answer; the node is asked again.
        again = [node for node, answer in answers.items() if answer is None and node in living]
        answers = {node: answer for node, answer in answers.items() if answer is not None}
        if any(isinstance(answer, str) or not all(answer) for answer in answers.values()):
            break
        calls = {call: node for call, node in calls.items() if node in living}
        waited = time.monotonic() - began
        if calls or again:
            if waited > PATIENCE_SECONDS:
                return answers, [*calls.values(), *again]
            if waited > NOTICE_SECONDS and not told:
                hosts, told = _hosts(names, [*calls.values(), *again]), True
                tell(f"waiting for {hosts} to say whether the study's folder is visible there (a busy node is slow)")
        if again:
            time.sleep(PAUSE_SECONDS)
            calls |= {_ask(node, tokens): node for node in again}
    return answers, []


@contextlib.contextmanager
def _tokens(folders: Sequence[Path]) -> Iterator[list[str]]:
    """A file in each folder that other nodes can look for; another study may prove the same folder at the same time."""
    tokens = [folder / f".token-{uuid.uuid4().hex}" for folder in folders]
    try:
        for token in tokens:
            token.write_text(token.name, encoding="utf-8")
        yield [str(token) for token in tokens]
    finally:
        for token in tokens:
            token.unlink(missing_ok=True)


def _blind(names: Mapping[str, str], folder: Path, answers: Mapping[str, Any], place: int) -> str:
    blind = [node for node, answer in answers.items() if not answer[place]]
    return f"{folder} is not visible on {_hosts(names, blind)}; choose one that all nodes share" if blind else ""


def _hosts(names: Mapping[str, str], nodes: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(sorted({names[node] for node in nodes}))


def _listed(folders: Sequence[Path]) -> str:
    return " and ".join(map(str, folders))


# what Ray is asked ---------------------------------------------------------------------------------------------------


def _living() -> dict[str, str]:
    """Host names by node id."""
    import ray

    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}


def _ask(node: str, tokens: Sequence[str]) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(sees).remote(tokens)


def _finished(calls: list[Any]) -> list[Any]:
    import ray

    return list(ray.wait(calls, num_returns=len(calls), timeout=PAUSE_SECONDS)[0])


def _answer(call: Any) -> Any:
    """What the node sees, by folder; why it cannot run anything; None where its process or the node died."""
    import ray

    try:
        return ray.get(call)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        return f"{type(cause).__name__}: {cause}" if cause is not None else str(error).strip().splitlines()[-1]
    except ray.exceptions.RayError:
        return None


def sees(tokens: Sequence[str]) -> list[bool]:
    """Whether each of these files is there and holds its own name."""
    return [_holds_its_name(Path(token)) for token in tokens]


def _holds_its_name(path: Path) -> bool:
    try:
        return path.read_text(encoding="utf-8") == path.name
    except OSError:
        return False
