"""The address of a Ray cluster, and whether one answers there: known without Ray, which would wait for minutes."""

from __future__ import annotations

import os
import socket
import time

from fedrela_bench.errors import ConfigError
from fedrela_bench.study.request import TuneRequest

CONNECT_SECONDS = 4.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a client of Ray begins (RFC 9113, 3.4): the preface and an empty SETTINGS frame."""
HEADER, SETTINGS = 9, 4
"""Bytes of a frame's header, and the type of the frame with which a server answers."""


def address_of(request: TuneRequest) -> str | None:
    """The cluster to connect to, or None for a local one."""
    return request.ray_address or os.environ.get("RAY_ADDRESS") or None


def knock(address: str) -> None:
    """Refuse an address at which nothing answers, or something else than Ray.

    Raises:
        ConfigError: with the reason.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS) as line:
            if not _is_encrypted() and not _greets(line):
                raise ConfigError(f"what answers at {address} is no Ray cluster; check host and port of --ray-address")
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no Ray cluster answers at {address} ({error}); check --ray-address") from error


def _is_encrypted() -> bool:
    return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")


def _greets(line: socket.socket) -> bool:
    """Whether the other side speaks the protocol of Ray's servers."""
    deadline, answer = time.monotonic() + CONNECT_SECONDS, b""
    line.sendall(GREETING)
    while len(answer) < HEADER:
        line.settimeout(max(0.01, deadline - time.monotonic()))
        part = line.recv(HEADER - len(answer))
        if not part:
            return False
        answer += part
    return answer[3] == SETTINGS
