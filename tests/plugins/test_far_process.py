"""A process that never saw a plugin computes with it: what travels is the plan of a study."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

from fedrela_bench import plugins
from fedrela_bench.config import TrialConfig
from fedrela_bench.study.preflight import preflight
from fedrela_bench.study.request import TuneRequest
from fedrela_bench.study.space import parse_space
from tests.plugins.texts import FEDLS, NET, write

ROOT = Path(__file__).resolve().parents[2]
SPACE = {
    "algorithm": "fedls",
    "parameters": {"federation.options.smoothing": {"choice": [0.0, 0.2]}, "relabel.tau": {"choice": [0.05]}},
    "fixed": {"relabel.start": 1},
}
BASE = {
    "federation.algorithm": "fedls",
    "federation.clients": 3,
    "federation.rounds": 2,
    "relabel.start": 1,
    "training.model": "tiny",
    "evaluation.selection": "test_slice",
}
FAR = """
import json, pickle, sys
from fedrela_bench.study.worker import run_cell_task, run_trunk_task
plan, point = pickle.load(sys.stdin.buffer)
print(json.dumps([run_trunk_task(plan, "fedls", 1, [1], 0.0), run_cell_task(plan, point, 1, 0.0)]))
"""


def test_a_plan_carries_the_text_of_its_plugins(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    plugins.activate(plugins.read_all([write(folder, "fedls.py", FEDLS), write(folder, "net.py", NET)]))
    base = TrialConfig().replace(BASE)
    out = tmp_path / "study"
    out.mkdir()
    request = TuneRequest({"fedls": base}, parse_space(SPACE), out, "digits_lt", device="cpu", log_models="none")
    plan = preflight(request).plan
    assert f"--plugin {folder / 'fedls.py'}" in request.resume_command
    for file in folder.iterdir():
        file.unlink()
    point = {"algorithm": "fedls", "federation.options.smoothing": 0.2, "relabel.tau": 0.05}
    message = pickle.dumps((plan, point))
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{FAR}"
    far = subprocess.run([sys.executable, "-c", code], input=message, capture_output=True, check=True, cwd=tmp_path)
    answers = json.loads(far.stdout)
    assert [answer["status"] for answer in answers] == ["finished"] * 2, answers
    assert plan.answer(point, [1]) is not None
    for entry in (plan.trunks([1])[0].entry, plan.entry(point, 1)):
        result = plan.runtime.store.result(entry.kind, entry.key)
        assert result is not None
        assert result["plugins"] == sorted(plugin.digest for plugin in request.plugins)
