"""Who may import whom: read from the source, and seen in a fresh interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "fedrela_bench"
LIGHT = {
    "errors",
    "rng",
    "config",
    "yaml_io",
    "files",
    "leases",
    "rounds",
    "words",
    "intervals",
    "stacks",
    "choice",
    "values",
    "host",
    "faults",
    "nested",
    "neutral",
    "plugins",
}
OURS: dict[str, set[str]] = {
    "errors": set(),
    "rng": set(),
    "config": {"errors", "faults", "nested", "neutral", "values"},
    "neutral": set(),
    "choice": set(),
    "values": set(),
    "files": set(),
    "leases": {"errors"},
    "rounds": set(),
    "intervals": set(),
    "stacks": set(),
    "words": set(),
    "host": set(),
    "faults": set(),
    "nested": set(),
    "plugins": {"errors", "plugins"},
    "yaml_io": {"errors"},
    "checks": {"config", "errors", "faults", "nested", "data", "models", "algorithms", "relabelers", "schedules"},
    "defaults": {
        "checks",
        "config",
        "errors",
        "faults",
        "nested",
        "yaml_io",
        "recipes",
        "data",
        "models",
        "algorithms",
        "relabel",
    },
    "relabel": {"errors", "relabel", "rng"},
    "relabelers": {"config", "errors", "faults", "plugins", "values", "relabel", "relabelers"},
    "schedules": {"config", "errors", "faults", "plugins", "values", "schedules"},
    "data": LIGHT | {"data"},
    "models": LIGHT | {"models"},
    "algorithms": LIGHT | {"data", "models", "relabel", "algorithms"},
    "simulation": LIGHT | {"data", "models", "relabel", "relabelers", "schedules", "algorithms", "simulation"},
    "testing": LIGHT | {"data", "models", "relabel", "relabelers", "schedules", "algorithms", "simulation", "testing"},
    "bench": LIGHT | {"recipes", "data", "models", "relabel", "algorithms", "simulation", "bench"},
    "study": LIGHT | {"data", "simulation", "relabelers", "schedules", "tracking", "study"},
    "tracking": LIGHT | {"tracking"},
    "reporting": LIGHT | {"reporting"},
}
HEAVY = {"torch", "ray", "optuna", "mlflow", "yaml", "pandas", "matplotlib", "sklearn"}
FOREIGN: dict[str, set[str]] = {
    "errors": set(),
    "rng": set(),
    "config": set(),
    "plugins": set(),
    "relabel": {"torch"},
    "relabelers": {"torch"},
    "schedules": set(),
    "data": {"torch", "sklearn"},
    "models": {"torch"},
    "algorithms": {"torch"},
    "simulation": {"torch"},
    "testing": {"torch"},
    "bench": {"torch"},
    "study": {"torch", "ray", "optuna", "yaml"},
    "tracking": {"mlflow"},
    "reporting": {"pandas", "matplotlib", "mlflow", "sklearn", "yaml"},
}


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "fedrela_bench"}
    return names


def _files(part: str) -> list[Path]:
    folder = PACKAGE / part
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    assert files, f"no source for {part}"
    return files


@pytest.mark.parametrize("part", sorted(OURS))
def test_parts_import_only_what_they_may(part: str) -> None:
    for path in _files(part):
        for name in _imports(path):
            if name.startswith("fedrela_bench."):
                target = name.split(".")[1]
                assert target in OURS[part] | {"__version__"}, f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize("part", sorted(FOREIGN))
def test_parts_use_only_their_libraries(part: str) -> None:
    for path in _files(part):
        used = {name.split(".")[0] for name in _imports(path)} & HEAVY
        assert used <= FOREIGN[part], f"{path.relative_to(PACKAGE)} imports {sorted(used - FOREIGN[part])}"


def _loaded(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(out.split()) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert _loaded("import fedrela_bench, fedrela_bench.config, fedrela_bench.cli") <= {"yaml"}


def test_a_simulation_loads_no_tuner_tracker_or_plotter() -> None:
    assert _loaded("import fedrela_bench.simulation, fedrela_bench.algorithms") <= {"torch"}


def test_a_trial_process_never_loads_the_tracker() -> None:
    assert "mlflow" not in _loaded("import fedrela_bench.study.cell, fedrela_bench.study.trunk")


def test_reports_load_neither_torch_nor_ray() -> None:
    modules = sorted(path.stem for path in (PACKAGE / "reporting").glob("*.py") if path.stem != "__init__")
    imports = ", ".join(f"fedrela_bench.reporting.{name}" for name in modules)
    assert not _loaded(f"import {imports}") & {"torch", "ray"}
