"""A wheel built and installed elsewhere works, with its search spaces and report specifications."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run([*build, str(REPOSITORY)], check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def _run(installed: Path, folder: Path, *arguments: str) -> str:
    code = "import sys, fedrela_bench.cli as c; print(c.__file__, file=sys.stderr); sys.exit(c.main())"
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(installed) in done.stderr
    return done.stdout


def test_spaces_and_reports_travel_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    listed = _run(installed, tmp_path, "spaces", "list")
    spaces = {path.stem for path in (REPOSITORY / "search_spaces").glob("*.yaml")}
    assert len(spaces) > 2
    for name in spaces:
        assert name in listed
    assert {path.name for path in (installed / "fedrela_bench" / "_reports").glob("*.yaml")} == {
        path.name for path in (REPOSITORY / "reports").glob("*.yaml")
    }


def test_a_run_works_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    arguments = ["--dataset", "digits_lt", "--federation.rounds", "2", "--out", str(tmp_path / "out")]
    assert "test" in _run(installed, tmp_path, "run", *arguments)
    assert (tmp_path / "out" / "result.json").is_file()


def test_types_travel_in_the_wheel(installed: Path) -> None:
    assert (installed / "fedrela_bench" / "py.typed").is_file()
