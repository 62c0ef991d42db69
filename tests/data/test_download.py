"""Downloads of named sets, against a server on this machine that breaks off, stalls, and answers other things."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedrela_bench.data import fetch
from fedrela_bench.data.sources import locate, read_source, transfer
from fedrela_bench.errors import ConfigError, DataError
from tests.data.makers import pixels, write_cifar100, write_fashion
from tests.data.server import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(transfer, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 20.0)
    stub = Server()
    yield stub
    stub.released.set()
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


ARCHIVE = "/cifar-100-python.tar.gz"


def failure(cache: Path) -> str:
    with pytest.raises(DataError) as caught:
        fetch("cifar100")
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "could not be downloaded" in message
    assert f"1. cache {cache}" in message
    assert "fedrela-bench data get cifar100" in message
    assert "FEDRELA_MIRROR" in message
    return message


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("404", "the server answered 404 (not found)"),
        ("403", "the server answered 403 (forbidden)"),
        ("500", "the server answered 500, 2 times in a row"),
        ("checksum", "not the published one (the md5 sum differs)"),
        ("damaged", "could not be downloaded"),
        ("refused", "refused, 2 times in a row"),
        ("html", "the server sent a web page"),
        ("html without a name", "the server sent a web page"),
    ],
)
def test_failed_download_leaves_nothing(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    attributes = serve_cifar100(server, tmp_path)
    if fault.isdigit():
        server.statuses[ARCHIVE] = [int(fault)] * 9
    elif fault == "checksum":
        attributes["tgz_md5"] = "0" * 32
    elif fault == "damaged":
        short = server.files[ARCHIVE][:-200]
        server.files[ARCHIVE], attributes["tgz_md5"] = short, md5(short)
    elif fault == "refused":
        attributes["url"] = "http://127.0.0.1:9/x.tar.gz"
    else:
        server.files[ARCHIVE] = b"\n <!DOCTYPE html><p>please log in</p>"
        server.kinds[ARCHIVE] = "text/html; charset=utf-8" if fault == "html" else "application/octet-stream"
    patch(monkeypatch, "CIFAR100", attributes)
    assert words in failure(cache)
    assert [path.name for path in cache.iterdir()] == ["cifar100.lock"]
    assert len(server.requests) <= 2


def test_a_connection_that_breaks_off_is_resumed(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    server.cuts[ARCHIVE] = [1000, 500]
    server.statuses[ARCHIVE] = [200, 503]
    fetch("cifar100")
    # 1000 bytes; an error; 500 more; the rest.
    assert server.ranges == [None, "bytes=1000-", "bytes=1000-", "bytes=1500-"]
    np.testing.assert_array_equal(read_source("cifar100").train_images, pixels(100))


def test_a_server_that_falls_silent_is_left_and_asked_again(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(transfer, "TRIES", 30)
    server.stalls.add(ARCHIVE)
    server.cuts[ARCHIVE] = [2000]
    fetch("cifar100")
    assert server.ranges[:2] == [None, "bytes=2000-"]
    np.testing.assert_array_equal(read_source("cifar100").train_images, pixels(100))


def test_what_arrived_stays_for_the_next_call(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    server.cuts[ARCHIVE] = [3000, 0, 0]
    message = failure(cache)
    assert "the connection ended at 3,000 of" in message
    assert "are kept for the next call" in message
    part = cache / ".cifar100-download" / "cifar-100-python.tar.gz.part"
    assert part.stat().st_size == 3000
    server.requests.clear()
    server.ranges.clear()
    lines: list[str] = []
    locate("cifar100", tell=lines.append)
    assert server.ranges == ["bytes=3000-"]
    assert lines[0].startswith("cifar-100-python.tar.gz: going on after 0.0 MB from http://127.0.0.1")
    assert lines[-1] == "cifar-100-python.tar.gz: complete, checksum right"
    assert not part.parent.exists()


@pytest.mark.parametrize("knows_ranges", [True, False])
@pytest.mark.parametrize("size", [500, 10**7])
def test_a_part_of_another_file_is_fetched_anew(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, knows_ranges: bool, size: int
) -> None:
    patch(monkeypatch, "CIFAR100", serve_cifar100(server, tmp_path))
    server.knows_ranges = knows_ranges
    part = cache / ".cifar100-download" / "cifar-100-python.tar.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * size)
    fetch("cifar100")
    np.testing.assert_array_equal(read_source("cifar100").train_images, pixels(100))


def test_a_mirror_is_asked_instead(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = serve_cifar100(server, tmp_path)
    server.files["/mine" + ARCHIVE] = server.files.pop(ARCHIVE)
    patch(monkeypatch, "CIFAR100", {**attributes, "url": "http://127.0.0.1:9/x.tar.gz"})
    monkeypatch.setenv("FEDRELA_MIRROR", f"{server.url}/mine/")
    fetch("cifar100")
    assert server.requests == ["/mine" + ARCHIVE]


def test_files_of_an_archive_go_nowhere_else(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = serve_cifar100(server, tmp_path)
    folder, buffer = tmp_path / "made" / "cifar-100-python", io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("train", "test", "meta"):
            archive.add(folder / name, f"../../outside/{name}")
        archive.add(folder / "meta", str(tmp_path / "absolute"))
        link = tarfile.TarInfo("cifar-100-python/evil")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    server.files[ARCHIVE], attributes["tgz_md5"] = buffer.getvalue(), md5(buffer.getvalue())
    patch(monkeypatch, "CIFAR100", attributes)
    fetch("cifar100")
    assert sorted(path.name for path in (cache / "cifar-100-python").iterdir()) == ["meta", "test", "train"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "made"]


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
    assert len(server.requests) == 1


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
