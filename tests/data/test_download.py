"""torchvision's downloads, against a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.data import fetch
from fedrela_bench.data.sources import read_source
from fedrela_bench.errors import ConfigError, DataError
from tests.data.makers import pixels, write_cifar100, write_fashion


class Server:
    """Serves bytes by path and counts the GET requests; torchvision asks twice, once for redirects."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                content = outer.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    stub = Server()
    yield stub
    stub.http.shutdown()
    stub.http.server_close()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def serve_cifar100(server: Server, tmp_path: Path) -> dict[str, object]:
    """Put a tiny CIFAR-100 archive on the server; the attributes torchvision's class must have to accept it."""
    root = write_cifar100(tmp_path / "made", pixels(100), np.arange(100), pixels(100, start=1), np.arange(100))
    folder, buffer = root / "cifar-100-python", io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, "cifar-100-python")
    server.files["/cifar-100-python.tar.gz"] = buffer.getvalue()
    sums = {name: md5((folder / name).read_bytes()) for name in ("train", "test", "meta")}
    return {
        "url": f"{server.url}/cifar-100-python.tar.gz",
        "tgz_md5": md5(buffer.getvalue()),
        "train_list": [["train", sums["train"]]],
        "test_list": [["test", sums["test"]]],
        "meta": {"filename": "meta", "key": "fine_label_names", "md5": sums["meta"]},
    }


def patch(monkeypatch: pytest.MonkeyPatch, name: str, attributes: dict[str, object]) -> None:
    from torchvision import datasets

    for attribute, value in attributes.items():
        monkeypatch.setattr(getattr(datasets, name), attribute, value)


def test_downloads_once_into_the_cache(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    assert fetch("cifar100_lt") == cache.absolute() / "cifar-100-python"
    asked = len(server.requests)
    assert asked > 0
    np.testing.assert_array_equal(read_source("cifar100").train_images, pixels(100))
    fetch("cifar100")
    assert len(server.requests) == asked
    assert sorted(path.name for path in cache.iterdir()) == ["arrays", "cifar-100-python", "cifar100.lock"]


def test_fashion_mnist(server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pixels(10, 28, 1)[..., 0]
    folder = write_fashion(tmp_path / "made", images, np.arange(10), images, np.arange(10))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    server.files |= {f"/mirror/{name}": content for name, content in files.items()}
    resources = [(name, md5(content)) for name, content in files.items()]
    patch(monkeypatch, "FashionMNIST", {"mirrors": [f"{server.url}/mirror/"], "resources": resources})
    assert fetch("fashion_mnist") == cache.absolute() / "FashionMNIST" / "raw"
    np.testing.assert_array_equal(read_source("fashion_mnist").test_images[..., 0], images)
    assert gzip.decompress(files["t10k-labels-idx1-ubyte.gz"])[-10:] == bytes(range(10))


@pytest.mark.parametrize("fault", ["404", "checksum", "truncated", "refused"])
def test_failed_download_leaves_nothing(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    attributes = serve_cifar100(server, tmp_path)
    if fault == "404":
        server.files.clear()
    elif fault == "checksum":
        attributes["tgz_md5"] = "0" * 32
    elif fault == "truncated":
        short = server.files["/cifar-100-python.tar.gz"][:-200]
        server.files["/cifar-100-python.tar.gz"], attributes["tgz_md5"] = short, md5(short)
    else:
        attributes["url"] = "http://127.0.0.1:9/x.tar.gz"
    patch(monkeypatch, "CIFAR100", attributes)
    with pytest.raises(DataError) as caught:
        fetch("cifar100")
    message = str(caught.value)
    assert "could not be downloaded" in message
    assert f"1. cache {cache}" in message
    assert "fedrela-bench data get cifar100" in message
    assert [path.name for path in cache.iterdir()] == ["cifar100.lock"]


def test_two_processes_download_once(server: Server, tmp_path: Path, cache: Path) -> None:
    attributes = serve_cifar100(server, tmp_path)
    code = (
        "from torchvision import datasets\n"
        f"for name, value in {attributes!r}.items(): setattr(datasets.CIFAR100, name, value)\n"
        "from fedrela_bench.data.sources import read_source\n"
        "print(int(read_source('cifar100').train_images.sum()))\n"
    )
    environment = {**os.environ, "FEDRELA_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    sums = [int(process.communicate(timeout=120)[0].split()[-1]) for process in running]
    assert sums == [int(pixels(100).sum())] * 2
    alone = 2
    assert len(server.requests) <= alone


def test_unwritable_cache_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    with pytest.raises(DataError, match="could not be downloaded to"):
        fetch("cifar10", cache_dir=blocker / "cache")


def test_incomplete_copy_in_the_cache_is_replaced(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    (cache / "cifar-100-python").mkdir(parents=True)
    (cache / "cifar-100-python" / "train").write_bytes(b"")
    fetch("cifar100")
    assert (cache / "cifar-100-python" / "train").stat().st_size > 1000


def test_nothing_to_fetch() -> None:
    assert fetch("digits_lt") is None
    with pytest.raises(ConfigError, match="cifar100"):
        fetch("cifar1000")
