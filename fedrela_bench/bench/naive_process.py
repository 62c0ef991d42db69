"""The naive loop in a process of its own, so that nothing this package does to its process helps or hinders it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Any, cast

from fedrela_bench.bench.case import Case, prepare
from fedrela_bench.bench.machine import peak_bytes
from fedrela_bench.bench.timing import Span, timed
from fedrela_bench.errors import RunError


class NaiveProcess:
    """Runs rounds on demand, one line each way per request.

    Args:
        case: what is trained.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, case: Case, device: str) -> None:
        where = str(case.data_dir or "")
        words = [sys.executable, "-m", __name__, case.workload.name, str(int(case.short)), device, where]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        self.peak = 0

    def __enter__(self) -> NaiveProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def measure(self, times: int) -> Span:
        """Mean of that many rounds.

        Raises:
            RunError: the process ended.
        """
        try:
            reply = self._ask(str(times))
        except (OSError, ValueError) as error:
            self._process.wait()
            self._said.seek(0)
            last = (self._said.read().strip().splitlines() or [f"exit code {self._process.returncode}"])[-1]
            raise RunError(f"the naive loop ended: {last}; free memory or time another workload") from error
        self.peak = reply["peak"]
        return Span(reply["wall"], reply["cpu"])

    def _ask(self, line: str) -> dict[str, Any]:
        there, back = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        there.write(line + "\n")
        there.flush()
        values: dict[str, Any] = json.loads(back.readline())
        return values


def serve(name: str, short: bool, device: str, data_dir: str) -> None:
    """Answer every line of stdin, a number of rounds, with their mean seconds and the peak of memory."""
    from pathlib import Path

    import torch

    from fedrela_bench.bench.naive import NaiveLoop
    from fedrela_bench.bench.workloads import WORKLOADS

    torch.set_num_threads(1)
    case = prepare(WORKLOADS[name], short, device, Path(data_dir) if data_dir else None)
    naive, place = NaiveLoop(case.config, case.dataset, device), torch.device(device)
    for line in sys.stdin:
        span = timed(lambda: naive.run_round(bool(case.evaluated)), place, int(line))
        print(json.dumps({"wall": span.wall, "cpu": span.cpu, "peak": peak_bytes()}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2] == "1", sys.argv[3], sys.argv[4])
