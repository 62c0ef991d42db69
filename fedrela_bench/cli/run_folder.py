"""The folder of one run: config.yaml, rounds.jsonl, last.pt, confusion.npz and, written last, result.json."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrela_bench.config import TrialConfig, parse
from fedrela_bench.defaults import to_yaml
from fedrela_bench.errors import ConfigError, StoreError
from fedrela_bench.yaml_io import load_mapping

if TYPE_CHECKING:
    from fedrela_bench.simulation import Simulation
    from fedrela_bench.simulation.metrics import RoundResult

FILES = ("rounds.jsonl", "result.json", "confusion.npz", "last.pt")


class RunFolder:
    """Everything that one run leaves behind.

    Args:
        path: the folder; made if absent.
        config: the run that it is for.

    Raises:
        ConfigError: the folder holds another run, or cannot be written.
    """

    def __init__(self, path: Path, config: TrialConfig) -> None:
        self.path = path
        self._claim(config)

    def __str__(self) -> str:
        return str(self.path)

    def _claim(self, config: TrialConfig) -> None:
        target = self.path / "config.yaml"
        if target.is_file():
            self._check_same(parse(load_mapping(target, "a configuration").value), config)
            return
        strangers = [name for name in FILES if (self.path / name).exists()]
        if strangers:
            raise ConfigError(f"--out {self.path} holds {strangers[0]} without config.yaml; choose another --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            target.write_text(to_yaml(config), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {self.path} cannot be written ({error.strerror}); choose another --out") from None

    def _check_same(self, stored: TrialConfig, config: TrialConfig) -> None:
        here, there = _flat(config.model_dump(mode="json")), _flat(stored.model_dump(mode="json"))
        names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
        if names:
            shown = ", ".join(f"{name} {there.get(name)} there, {here.get(name)} here" for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ConfigError(f"--out {self.path} holds another run ({shown}{more}); choose another --out")

    def finished(self, data_digest: str) -> dict[str, Any] | None:
        """The stored result of this run, where it has ended.

        Raises:
            ConfigError: it was computed on other images.
        """
        path = self.path / "result.json"
        if not path.is_file():
            return None
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error}); delete it to finish the run again") from None
        if result.get("data_digest") != data_digest:
            raise ConfigError(f"--out {self.path} holds this run on other images or clients; choose another --out")
        return result

    def resume(self, simulation: Simulation) -> list[dict[str, Any]]:
        """Restore the last snapshot and cut rounds.jsonl to it; returns its lines, none where the run starts anew."""
        from fedrela_bench.simulation.snapshot import load_snapshot

        lines: list[str] = []
        if (self.path / "last.pt").is_file():
            simulation.restore(load_snapshot(self.path / "last.pt"))
            lines = self._read_rounds()[: simulation.completed_rounds]
        self._write("rounds.jsonl", "".join(f"{line}\n" for line in lines).encode())
        if len(lines) != simulation.completed_rounds:
            raise StoreError(
                f"{self.path}/rounds.jsonl has lost rounds before its snapshot; delete {self.path}/last.pt"
            )
        return [json.loads(line) for line in lines]

    def _read_rounds(self) -> list[str]:
        path = self.path / "rounds.jsonl"
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []

    def append(self, result: RoundResult) -> None:
        """Add one round: its metrics, correct predictions per class and relabelling, without the confusion matrices."""
        values = {name: value for name, value in result.to_json().items() if name != "confusion"}
        values["correct"] = {name: np.diag(matrix).tolist() for name, matrix in result.confusion.items()}
        try:
            with (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise StoreError(f"{self.path}/rounds.jsonl cannot be written ({error.strerror}); free space") from None

    def save_snapshot(self, simulation: Simulation) -> None:
        """Keep the state between rounds, from which the same command goes on."""
        from fedrela_bench.simulation.snapshot import save_snapshot

        save_snapshot(self.path / "last.pt", simulation.snapshot())

    def finish(self, summary: dict[str, Any], confusion: dict[str, np.ndarray], flow: np.ndarray | None) -> None:
        """Write the matrices of the last evaluated round and the last relabelling, then the result."""
        arrays = dict(confusion) if flow is None else {**confusion, "flow": flow}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        self._write("confusion.npz", buffer.getvalue())
        self._write("result.json", (json.dumps(summary, indent=1) + "\n").encode())

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path / f".{name}.tmp"
        try:
            temporary.write_bytes(data)
            temporary.replace(self.path / name)
        except OSError as error:
            raise StoreError(f"{self.path}/{name} cannot be written ({error.strerror}); free space") from None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict) and value and not prefix.startswith("federation.options")
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
