"""The folder of one run: config.yaml, rounds.jsonl, last.pt, confusion.npz and, written last, result.json."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.defaults import to_yaml
from fedrela_bench.errors import ConfigError, RunError, StoreError
from fedrela_bench.files import write_atomically
from fedrela_bench.neutral import with_neutral
from fedrela_bench.plugins import used
from fedrela_bench.yaml_io import load_mapping

if TYPE_CHECKING:
    from fedrela_bench.simulation import Simulation
    from fedrela_bench.simulation.metrics import RoundResult
    from fedrela_bench.simulation.snapshot import Snapshot

CODE = "plugins.json"
"""Digests of the plugins that the run uses, where there are any."""
FILES = ("rounds.jsonl", "result.json", "confusion.npz", "last.pt")


class RunFolder:
    """Everything that one run leaves behind.

    Args:
        path: the folder; made if absent.
        config: the run that it is for.

    Raises:
        ConfigError: the folder holds another run, or cannot be written.
        StoreError: what it holds is damaged.
    """

    def __init__(self, path: Path, config: TrialConfig) -> None:
        self.path = path
        self._claim(config)

    def __str__(self) -> str:
        return str(self.path)

    def _claim(self, config: TrialConfig) -> None:
        target = self.path / "config.yaml"
        strangers = [name for name in FILES if (self.path / name).exists()]
        code = [plugin.digest for plugin in used(config.model_dump(mode="json"))]
        if target.is_file() and target.stat().st_size:
            self._check_same(self._stored(target), config)
            self._check_code(code)
            return
        if strangers:
            state = "an empty config.yaml" if target.is_file() else "no config.yaml"
            raise ConfigError(f"--out {self.path} holds {strangers[0]} but {state}; choose another --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if code:
                self._write(CODE, json.dumps(code).encode())
            self._write("config.yaml", to_yaml(config).encode())
        except (OSError, StoreError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"--out {self.path} cannot be written ({reason}); choose another --out") from None

    def _stored(self, target: Path) -> TrialConfig:
        try:
            return parse(with_neutral(TrialConfig, load_mapping(target, "a configuration").value))
        except ConfigError as error:
            faults = [fault if str(target) in fault else f"{target}: {fault}" for fault in error.faults]
            raise ConfigError(
                [*faults, f"--out {self.path} holds no run to go on with; choose another --out"]
            ) from None

    def _check_same(self, stored: TrialConfig, config: TrialConfig) -> None:
        here, there = _flat(config.model_dump(mode="json")), _flat(stored.model_dump(mode="json"))
        names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
        if names:
            shown = ", ".join(f"{name} {there.get(name)} there, {here.get(name)} here" for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ConfigError(f"--out {self.path} holds another run ({shown}{more}); choose another --out")

    def _check_code(self, code: list[str]) -> None:
        """Refuse to go on with other code of the user's than the run was begun with."""
        path = self.path / CODE
        try:
            known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error}); choose another --out") from None
        if known != code:
            raise ConfigError(
                f"--out {self.path} holds this run by other code: the plugin that it uses has changed since; choose "
                "another --out, or bring the old code back"
            )

    def finished(self, data_digest: str) -> dict[str, Any] | None:
        """The stored result of this run, where it has ended.

        Raises:
            ConfigError: it was computed on other images.
            StoreError: it is damaged.
        """
        path = self.path / "result.json"
        if not path.is_file():
            return None
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            fault = _result_fault(result)
        except (OSError, ValueError) as error:
            fault = str(error)
        if fault:
            raise StoreError(f"{path} is damaged ({fault}); delete it to finish the run again")
        if result["data_digest"] != data_digest:
            raise ConfigError(f"--out {self.path} holds this run on other images or clients; choose another --out")
        return result

    def resume(self, simulation: Simulation) -> list[dict[str, Any]]:
        """Restore the last snapshot and cut rounds.jsonl to it; returns its lines, none where the run starts anew.

        Raises:
            StoreError: the snapshot or the rounds before it are damaged; nothing was changed.
        """
        if not (self.path / "last.pt").is_file():
            self._write("rounds.jsonl", b"")
            return []
        self._restore(simulation)
        texts, lines = self._read_rounds(simulation.completed_rounds)
        self._write("rounds.jsonl", b"".join(text + b"\n" for text in texts))
        return lines

    def _restore(self, simulation: Simulation) -> None:
        from fedrela_bench.simulation.snapshot import load_snapshot

        path = self.path / "last.pt"
        remedy = f"delete {path} to start this run anew"
        try:
            simulation.restore(load_snapshot(path))
        except (StoreError, RunError) as error:
            raise StoreError(f"this run cannot go on: {error}; {remedy}") from None

    def _read_rounds(self, count: int) -> tuple[list[bytes], list[dict[str, Any]]]:
        """The first `count` lines of rounds.jsonl, as they stand and as values."""
        path, remedy = self.path / "rounds.jsonl", f"delete {self.path / 'last.pt'} to start this run anew"
        try:
            texts = path.read_bytes().split(b"\n")[:count] if path.is_file() else []
            lines = [_round_line(text) for text in texts]
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
        for number in range(1, count + 1):
            line = lines[number - 1] if number <= len(lines) else None
            if line is None or line.get("round") != number:
                raise StoreError(f"{path} is damaged: line {number} is not round {number} of {count}; {remedy}")
        return texts, [line for line in lines if line is not None]

    def append(self, result: RoundResult) -> None:
        """Add one round: its metrics, correct predictions per class and relabelling, without the confusion matrices."""
        values = {name: value for name, value in result.to_json().items() if name != "confusion"}
        values["correct"] = {name: np.diag(matrix).tolist() for name, matrix in result.confusion.items()}
        try:
            with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise StoreError(f"{self.path}/rounds.jsonl cannot be written ({error.strerror}); free space") from None

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a state between rounds, from which the same command goes on."""
        from fedrela_bench.simulation.snapshot import save_snapshot

        save_snapshot(self.path / "last.pt", snapshot)

    def finish(self, summary: dict[str, Any], confusion: dict[str, np.ndarray], flow: np.ndarray | None) -> None:
        """Write the matrices of the last evaluated round and the last relabelling, then the result."""
        arrays = dict(confusion) if flow is None else {**confusion, "flow": flow}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        self._write("confusion.npz", buffer.getvalue())
        self._write("result.json", (json.dumps(summary, indent=1) + "\n").encode())

    def _write(self, name: str, data: bytes) -> None:
        try:
            write_atomically(self.path / name, data)
        except OSError as error:
            raise StoreError(f"{self.path / name} cannot be written ({error.strerror}); free space") from None


def _result_fault(result: object) -> str:
    wanted = {"status": str, "rounds": int, "metrics": dict, "data_digest": str}
    if not isinstance(result, dict):
        return f"it holds a {type(result).__name__}, not a mapping"
    lost = [name for name, kind in wanted.items() if not isinstance(result.get(name), kind)]
    if not lost and not all(isinstance(values, dict) for values in result["metrics"].values()):
        lost = ["metrics"]
    return f"{', '.join(lost)} missing" if lost else ""


def _round_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("metrics"), dict) else None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict) and value and not prefix.startswith("federation.options")
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
