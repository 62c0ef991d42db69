"""A server on this machine that breaks off, falls silent, and answers other things than what was asked for."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves bytes by path, with ranges, and counts the requests; faults are asked for by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.ranges: list[str | None] = []
        self.knows_ranges = True
        self.kinds: dict[str, str] = {}
        """Content types."""
        self.statuses: dict[str, list[int]] = {}
        """Statuses of the next answers, before the content is served."""
        self.cuts: dict[str, list[int]] = {}
        """How many bytes of the next answers arrive before the connection ends ..."""
        self.stalls: set[str] = set()
        """... or falls silent, for these paths."""
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, asked = handler.path, handler.headers.get("Range")
        self.requests.append(path)
        self.ranges.append(asked)
        content = self.files.get(path)
        status = self.statuses[path].pop(0) if self.statuses.get(path) else 404 if content is None else 200
        if status != 200 or content is None:
            handler.send_error(status)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.knows_ranges else 0
        if start >= len(content) > 0 and start:
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Type", self.kinds.get(path, "application/gzip"))
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        cut = self.cuts[path].pop(0) if self.cuts.get(path) else len(content)
        handler.wfile.write(content[start : start + cut])
        handler.wfile.flush()
        if path in self.stalls and start + cut < len(content):
            self.released.wait(60)
