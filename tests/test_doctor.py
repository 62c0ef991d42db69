"""`doctor` names what is wrong with a machine and what to do; it starts, downloads and writes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedrela_bench import host
from fedrela_bench.cli import findings, machine, main, surroundings
from fedrela_bench.cli.findings import Finding
from fedrela_bench.study import room

Capture = pytest.CaptureFixture[str]
CLOSED = "127.0.0.1:9"
GIB = 2**30


@pytest.fixture(autouse=True)
def quiet_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with room, and no settings of whoever runs the tests."""
    for name in ("RAY_ADDRESS", "OMP_NUM_THREADS", "FEDRELA_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "free_memory", lambda: 8 * GIB)
    monkeypatch.setattr(host, "free_disk", lambda path: 50 * GIB)
    monkeypatch.setattr(machine, "CPU_LIMIT", tmp_path / "no limit")
    monkeypatch.setattr(machine, "NVIDIA", ())
    monkeypatch.chdir(tmp_path)


def found(capsys: Capture, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    assert main(["doctor", "--json", *arguments]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] == (code == 0) and told["version"]
    assert all((item["remedy"] is not None) == (item["status"] != "ok") for item in told["findings"])
    return {item["name"]: item for item in told["findings"]}


def one(look: Any) -> Finding:
    (finding,) = look
    assert isinstance(finding, Finding) and bool(finding.remedy) == (finding.status != "ok")
    return finding


def test_what_is_here_in_eighty_plain_columns_and_nothing_is_written(capsys: Capture, tmp_path: Path) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("fedrela-bench ") and "no failure" in text.splitlines()[0]
    assert "\x1b" not in text and not list(tmp_path.iterdir())
    for heading in ("software", "machine", "folders", "services", "datasets"):
        assert f"\n\n{heading}\n" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "/" not in line)


def test_a_machine_that_is_well_has_findings_for_everything(capsys: Capture) -> None:
    told = found(capsys)
    for name in ("python", "torch", "ray", "mlflow", "cpu", "threads", "memory", "shared memory", "temporary files"):
        assert name in told
    for name in ("studies", "cache", "digits", "fashion_mnist", "cifar10", "cifar100"):
        assert name in told


def test_neither_ray_nor_mlflow_is_loaded() -> None:
    code = (
        "import sys; from fedrela_bench.cli import main; code = main(['doctor']);"
        "print(sorted({'ray', 'mlflow', 'optuna', 'pandas'} & sys.modules.keys()), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.strip().splitlines()[-1] == "[]"


def test_packages_that_are_missing_or_of_another_version(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["numpy>=99", "not-a-package>=1,<2", "typer>=0.1", "viz-only; extra == 'viz'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needed)
    told = found(capsys, code=1)
    assert told["numpy"]["status"] == "warn" and "not one of >=99" in told["numpy"]["fact"]
    assert told["not-a-package"]["status"] == "fail" and "not-a-package" in told["not-a-package"]["remedy"]
    assert "typer" not in told and "viz-only" not in told


def test_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    told_of = Message()
    told_of["Requires-Python"] = ">=3.11"
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: told_of)
    monkeypatch.setattr("platform.python_version", lambda: "3.9.1")
    told = one(machine._python())
    assert told.status == "fail" and told.fact == "3.9.1, but >=3.11 is needed"
    monkeypatch.setattr("platform.python_version", lambda: "3.12.0rc1")
    assert one(machine._python()).status == "ok"


@pytest.mark.parametrize(
    ("text", "status"), [("50000 100000", "warn"), ("max 100000", "ok"), ("9900000 100000", "ok"), ("?", "ok")]
)
def test_a_containers_share_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, status: str
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(machine, "CPU_LIMIT", tmp_path / "cpu.max")
    told = one(machine._cpu())
    assert told.status == status
    assert told.remedy == ("give tune --max-concurrent 1" if status == "warn" else "")


@pytest.mark.parametrize(("value", "status"), [("1", "ok"), ("4096", "warn"), ("0", "warn"), ("all", "warn")])
def test_threads_that_are_no_number_of_cores(monkeypatch: pytest.MonkeyPatch, value: str, status: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert one(machine._threads()).status == status


@pytest.mark.parametrize(("free", "status"), [(100 * 2**20, "fail"), (GIB, "warn"), (8 * GIB, "ok"), (None, "ok")])
def test_memory(monkeypatch: pytest.MonkeyPatch, free: int | None, status: str) -> None:
    monkeypatch.setattr(room, "free_memory", lambda: free)
    assert one(machine._memory()).status == status


@pytest.mark.parametrize(
    ("cuda", "remedy"), [(None, "install a build of torch for CUDA"), ("12.4", "update the driver")]
)
def test_a_driver_that_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: str | None, remedy: str
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    assert one(machine._gpu()).status == "ok"
    monkeypatch.setattr(machine, "NVIDIA", (tmp_path,))
    told = one(machine._gpu())
    assert told.status == "warn" and told.remedy.startswith(remedy)


def test_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Properties:
        name, total_memory = "A device", 80 * GIB

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: Properties)
    assert [(told.name, told.fact) for told in machine._gpu()] == [
        ("gpu 0", "A device, 80.0 GiB"),
        ("gpu 1", "A device, 80.0 GiB"),
    ]


def test_little_shared_memory_and_little_room_for_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = type("Usage", (), {"free": 60 * 2**20, "total": 64 * 2**20})
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    told = one(machine._shared_memory())
    assert told.status == "warn" and "60 MiB of 64 MiB" in told.fact and "--shm-size" in told.remedy
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "none")
    assert one(machine._shared_memory()).status == "ok"
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + "x" * 60)
    assert "too long" in one(machine._temporary()).fact
    monkeypatch.setattr(host, "free_disk", lambda path: 2**20)
    assert one(machine._temporary()).status == "fail"

    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    assert one(machine._temporary()).status == "fail"


def test_folders_that_cannot_hold_a_study(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = found(capsys, "--out", "file", "--store", "s3://bucket/runs", code=1)
    assert told["studies"]["status"] == "fail" and "is a file" in told["studies"]["fact"]
    assert told["studies"]["remedy"] == "choose a folder"
    assert told["store"]["status"] == "fail" and "object store" in told["store"]["fact"]
    (tmp_path / "studies").touch()
    assert found(capsys)["studies"]["status"] == "warn"
    monkeypatch.setattr(host, "free_disk", lambda path: GIB // 2)
    assert found(capsys, "--out", "a")["studies"]["status"] == "warn"
    monkeypatch.setattr(host, "free_disk", lambda path: 2**20)
    assert found(capsys, "--out", "a", code=1)["studies"]["status"] == "fail"
    assert not (tmp_path / "a").exists()


def test_a_cache_that_cannot_be_written(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDRELA_CACHE", str(tmp_path / "file" / "cache"))
    told = found(capsys)["cache"]
    assert told["status"] == "warn" and "FEDRELA_CACHE" in told["remedy"]


def test_a_cluster_that_does_not_answer_makes_what_was_asked_for_impossible(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = found(capsys, "--ray-address", CLOSED, code=1)["ray"]
    assert told["status"] == "fail" and told["remedy"] == "check --ray-address"
    assert found(capsys, "--ray-address", "auto")["ray"]["status"] == "warn"
    monkeypatch.setenv("RAY_ADDRESS", CLOSED)
    told = found(capsys, code=1)["ray"]
    assert told["fact"].startswith("RAY_ADDRESS is set: ") and "unset RAY_ADDRESS" in told["remedy"]


class Stub(BaseHTTPRequestHandler):
    content = b"3.17.2"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    listening = HTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()


def test_mlflow_servers(capsys: Capture, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    assert found(capsys, "--tracking-uri", server)["mlflow"]["fact"] == f"MLflow 3.17.2 answers at {server}"
    monkeypatch.setattr(Stub, "content", b"<html>welcome</html>")
    assert "no MLflow server" in found(capsys, "--tracking-uri", server)["mlflow"]["fact"]
    told = found(capsys, "--tracking-uri", f"http://{CLOSED}")["mlflow"]
    assert told["status"] == "warn" and "fedrela-bench sync" in told["remedy"]


def test_mlflow_files(capsys: Capture, tmp_path: Path) -> None:
    assert found(capsys, "--tracking-uri", "file:///a", code=1)["mlflow"]["remedy"].startswith("use sqlite:///")
    assert found(capsys, "--tracking-uri", f"sqlite:///{tmp_path}/no/m.db", code=1)["mlflow"]["status"] == "fail"
    assert "will be made" in found(capsys, "--tracking-uri", f"sqlite:///{tmp_path}/m.db")["mlflow"]["fact"]
    (tmp_path / "m.db").write_text("not a database, and long enough to be looked at" * 40)
    told = found(capsys, "--tracking-uri", f"sqlite:///{tmp_path}/m.db", code=1)["mlflow"]
    assert "is no database" in told["fact"] and (tmp_path / "m.db").read_text().startswith("not a")


def test_a_study_on_another_machines_disk_wants_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/a {tmp_path}/shared nfs4 rw 0 0\n")
    monkeypatch.setattr(surroundings, "MOUNTS", mounts)
    assert surroundings.file_system(tmp_path) == "ext4"
    told = one(surroundings._mlflow(None, tmp_path / "shared" / "studies"))
    assert told.status == "warn" and "nfs4" in told.fact and "--tracking-uri" in told.remedy
    monkeypatch.setattr(surroundings, "MOUNTS", tmp_path / "none")
    assert one(surroundings._mlflow(None, tmp_path)).status == "ok"


def test_datasets_that_are_here_in_part(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "images" / "cifar-100-python").mkdir(parents=True)
    (tmp_path / "images" / "cifar-100-python" / "train").touch()
    told = found(capsys, "--data-dir", str(tmp_path / "images"))
    assert told["cifar100"]["status"] == "warn" and "lacks test, meta" in told["cifar100"]["fact"]
    assert told["cifar10"]["fact"] == "not here; fedrela-bench data get cifar10"
    assert told["imagenet"]["fact"] == "not here; docs/data.md says what to put where"
    (tmp_path / "images" / "ImageNet_LT_train.txt").touch()
    told = found(capsys, "--data-dir", str(tmp_path / "images"))["imagenet"]
    assert told["status"] == "warn" and "lacks ImageNet_LT_test.txt" in told["fact"]
    assert told["remedy"] == "complete it; docs/data.md says what to put where"
    told = found(capsys, "--data-dir", "nowhere", code=1)
    assert told["--data-dir"]["status"] == "fail" and "cifar10" not in told


def test_a_check_that_breaks_does_not_hide_the_others() -> None:
    def broken() -> Iterator[Finding]:
        yield Finding("a", "b", "ok", "c")
        raise KeyError("luck")

    told = one(findings.looked("machine", "cpu", broken))
    assert (told.group, told.name, told.status) == ("machine", "cpu", "warn") and "KeyError: 'luck'" in told.fact
    assert told.remedy == "repeat with --debug to see where"


def test_debug_shows_where_a_check_breaks(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cache(path: Path) -> int:
        raise KeyError("luck")

    monkeypatch.setattr(host, "free_disk", no_cache)
    assert "--debug" in found(capsys)["cache"]["remedy"]
    assert main(["doctor", "--json", "--debug"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] and "in no_cache" in err
    assert main(["doctor", "--json"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_colours_only_where_a_terminal_shows_them() -> None:
    listed = [Finding("machine", "cpu", "fail", "bad " * 40, "do something about it")]
    plain = list(findings.lines_of(listed, 80, coloured=False))
    assert not any("\x1b" in line for line in plain) and max(map(len, plain)) <= 80
    assert any("-> do something" in line for line in plain)
    assert any("\x1b[31m" in line for line in findings.lines_of(listed, 80, coloured=True))
