"""Fetching one file over HTTP: with a limit on silence, resumed where it broke off, in place once its sum is right.

What has arrived stays beside the target as ``NAME.part``, so that a later call goes on from there.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SILENCE_SECONDS = 30.0
"""A firewall that drops packets would otherwise hang a compute node forever."""
TRIES = 2
"""Connections in a row that bring nothing new, before an address is given up."""
PAUSE_SECONDS = 1.0
BLOCK = 1 << 16
AGENT = "fedrela-bench"
GONE = {403: "forbidden", 404: "not found", 410: "gone"}

Tell = Callable[[str], None]


class TransferError(Exception):
    """Why a file could not be fetched, in words."""


class _BrokenOffError(Exception):
    """The connection ended early; trying again may bring the rest."""


@dataclass
class _Part:
    """The file under way."""

    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def md5(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()


def fetch_file(urls: Sequence[str], target: Path, md5: str, tell: Tell) -> None:
    """Download a file; the first address that has it serves.

    Args:
        urls: addresses of the same content.
        target: where it goes; its folder exists.
        md5: of the content, in hexadecimal digits.
        tell: takes lines about the progress.

    Raises:
        TransferError: no address gave the right content; what arrived of it stays for the next call.
        OSError: the file cannot be written.
    """
    reasons = []
    for url in urls:
        try:
            _from_one(url, target, md5, tell)
        except TransferError as error:
            reasons.append(f"{url}: {error}")
        else:
            return
    raise TransferError("; ".join(reasons))


def _from_one(url: str, target: Path, md5: str, tell: Tell) -> None:
    part = _Part(target.with_name(f"{target.name}.part"))
    old = part.size > 0
    _complete(url, part, target.name, tell)
    if part.md5() != md5 and old:
        # The beginning was of another version of the file.
        part.path.unlink()
        _complete(url, part, target.name, tell)
    if part.md5() != md5:
        part.path.unlink()
        raise TransferError("its content is not the published one (the md5 sum differs)")
    part.path.replace(target)
    tell(f"{target.name}: complete, checksum right")


def _complete(url: str, part: _Part, name: str, tell: Tell) -> None:
    """Connect until everything has arrived."""
    idle, reason = 0, ""
    while idle < TRIES:
        before = part.size
        try:
            _receive(url, part, name, tell)
        except _BrokenOffError as error:
            reason = str(error)
            idle = 0 if part.size > before else idle + 1
            tell(f"{name}: {reason}; {_megabytes(part.size)} so far")
            time.sleep(PAUSE_SECONDS if idle < TRIES else 0)
        else:
            return
    kept = f", {_megabytes(part.size)} are kept for the next call" if part.size else ""
    raise TransferError(f"{reason}, {TRIES} times in a row{kept}")


def _receive(url: str, part: _Part, name: str, tell: Tell) -> None:
    """One connection's bytes, to the end of the file.

    Raises:
        _BrokenOffError: it ended early.
        TransferError: there is no use in asking this address again.
    """
    start = part.size
    request = urllib.request.Request(url, headers={"User-Agent": AGENT})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as answer:
            start = start if _goes_on(answer, start) else 0
            _copy(answer, part, start, name, tell)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:
            return  # Everything is there already; the sum will tell.
        if error.code >= 500 or error.code == 429:
            raise _BrokenOffError(f"the server answered {error.code}") from error
        raise TransferError(f"the server answered {error.code} ({GONE.get(error.code, error.reason)})") from error
    except TimeoutError as error:
        raise _BrokenOffError(f"nothing came for {SILENCE_SECONDS:g} s") from error
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        text = getattr(reason, "strerror", None) or str(reason).strip() or type(reason).__name__
        raise _BrokenOffError(text) from error


def _goes_on(answer: Any, start: int) -> bool:
    """Whether the answer begins at the byte that was asked for, not at the first."""
    found = answer.headers.get("Content-Range", "")
    return getattr(answer, "status", None) == 206 and found.startswith(f"bytes {start}-")


def _copy(answer: Any, part: _Part, start: int, name: str, tell: Tell) -> None:
    length = answer.headers.get("Content-Length")
    total = start + int(length) if length and length.isdecimal() else None
    tell(
        f"{name}: {'going on after' if start else 'fetching'} {_megabytes(start or total or 0)} from {answer.geturl()}"
    )
    # Not `read`, which waits for a whole block and loses the part of it that came before a silence.
    block = answer.read1(BLOCK)
    if "html" in answer.headers.get("Content-Type", "") or (not start and block.lstrip()[:1] == b"<"):
        raise TransferError("the server sent a web page, perhaps of a proxy or a login, not the file")
    with part.path.open("r+b" if start else "wb") as file:
        file.seek(start)
        size, shown = start, 0.0
        while block:
            file.write(block)
            size += len(block)
            if total and size / total >= shown + 0.25:
                shown = size / total
                tell(f"{name}: {_megabytes(size)} of {_megabytes(total)}")
            block = answer.read1(BLOCK)
    if total is not None and size < total:
        raise _BrokenOffError(f"the connection ended at {size:,} of {total:,} bytes")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
