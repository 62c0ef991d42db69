"""MLflow's UI as a user sees it after `tune`: a study that explains itself, nested runs, two of them compared, curves.

Screenshots go to the folder that FEDRELA_SCREENSHOTS names, otherwise to pytest's temporary one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrela_bench.tracking.journal import Journal
from fedrela_bench.tracking.manifest import Manifest, Record
from fedrela_bench.tracking.naming import run_name, study_name
from tests.ui.browser import Page, browser, need_browser

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
CLI = "import sys; from fedrela_bench.cli import main; sys.exit(main())"
ROUNDS = 6
STUDY = ["--dataset", "digits_lt", "--algorithm", "fedavg", "--trials", "2", "--seeds", "1", "--device", "cpu"]
STUDY += ["--federation.rounds", str(ROUNDS), "--federation.clients", "3", "--stage", "trunks,search,report"]
CURVES = """
return Array.from(document.querySelectorAll('.js-plotly-plot')).flatMap(plot => (plot.data || [])
    .filter(line => line.type === 'scatter' && line.name)
    .map(line => ({name: line.name, x: Array.from(line.x || []), y: Array.from(line.y || [])})))
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", CLI, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


class Opened:
    """A finished study, and the address that `ui` prints."""

    def __init__(self, out: Path, address: str) -> None:
        self.out = out
        self.address = address
        self.facts = json.loads((out / "study.json").read_text())
        self.records = Manifest(out).read()[0]
        self.parent = study_name(out)

    def name(self, kind: str) -> str:
        return run_name(self.record(kind), self.facts)

    def record(self, kind: str) -> Record:
        return next(record for record in self.records if record.kind == kind)

    def curve(self, kind: str, metric: str) -> list[float]:
        """The whole curve of the first run of a kind, the rounds of its trunk included."""
        record = self.record(kind)
        folders = [record.trunk_folder, record.folder] if record.trunk_folder else [record.folder]
        lines = [line for folder in folders for line in Journal(self.out / folder / "rounds.jsonl").lines()]
        known: dict[int, float] = {}
        for line in lines:
            if record.kind == "trunk" or line["round"] <= record.fork_round or line in lines[ROUNDS:]:
                known[line["round"]] = line["result"]["metrics"][metric]
        return [known[number] for number in sorted(known)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("FEDRELA_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    need_browser()
    out = tmp_path_factory.mktemp("study") / "digits"
    made = subprocess.run(command("tune", *STUDY, "--out", str(out)), env=environment(), capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        command("ui", str(out), "--port", str(port)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        address = None
        for line in server.stdout:
            address = address or re.search(r"http://\S+", line)
            if "Uvicorn running" in line or "startup complete" in line:
                break
        assert address is not None and server.poll() is None
        yield Opened(out, address.group())
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


@pytest.fixture
def page(pictures: Path) -> Iterator[Page]:
    with browser(pictures) as window:
        yield window


def show_runs(page: Page, study: Opened) -> None:
    """Open the address that `ui` printed, and the study's runs in it."""
    page.open(study.address)
    page.sees(study.parent)
    close_assistant(page)
    page.click(f"//a[normalize-space()='{study.parent}']/ancestor::div[@role='gridcell'][1]//button")
    page.sees(study.name("trunk"), study.name("cell"))


def close_assistant(page: Page) -> None:
    """MLflow's assistant opens itself once in a new browser."""
    page.script("""document.querySelectorAll("button[aria-label='Close']").forEach(button => button.click())""")


def test_the_address_opens_the_study_with_its_runs_in_order_and_chosen_columns(page: Page, opened: Opened) -> None:
    show_runs(page, opened)
    page.sees("final/test/overall", "final/test/tail", "relabel.tau", "digits_lt")
    page.picture("1_runs")
    text = page.text()
    names = [opened.parent, *(run_name(record, opened.facts) for record in opened.records)]
    assert [text.index(name) for name in names] == sorted(text.index(name) for name in names)
    assert "Traces" not in text.split("Experiments", 1)[1], "the pages are those of model training"
    assert "GenAI" in text


def test_two_runs_are_compared_and_their_curves_are_seen(page: Page, opened: Opened) -> None:
    show_runs(page, opened)
    chosen = [opened.name("trunk"), opened.name("cell")]
    for name in chosen:
        row = f"//a[normalize-space()='{name}']/ancestor::div[@role='row'][1]"
        page.click(f"{row}//input[@type='checkbox']")
    page.click("//button[normalize-space()='Compare']")
    page.sees("Comparing 2 Runs", *chosen)
    assert page.until("a drawing", lambda: page.script("return document.querySelectorAll('svg.main-svg path').length"))
    page.picture("2_compared")

    show_runs(page, opened)
    page.script("document.querySelector(\"input[type='radio'][value='CHART']\").click()")
    search = page.until(
        "search of charts", lambda: page.driver.find_elements("css selector", "input[placeholder^='Search metric']")
    )
    search[0].send_keys("^test/overall")

    def drawn() -> bool:
        lines = {line["name"]: line for line in page.script(CURVES)}
        return set(chosen) <= set(lines) and all(len(lines[name]["x"]) == ROUNDS for name in chosen)

    page.until("curves of both runs", drawn)
    page.picture("3_curves")
    lines = {line["name"]: line for line in page.script(CURVES)}
    for kind in ("trunk", "cell"):
        line = lines[opened.name(kind)]
        assert line["x"] == list(range(1, ROUNDS + 1))
        assert line["y"] == pytest.approx(opened.curve(kind, "test/overall"))


def test_the_study_says_what_it_is_and_how_to_go_on(page: Page, opened: Opened) -> None:
    show_runs(page, opened)
    page.click(f"//a[normalize-space()='{opened.parent}']")
    page.sees("FedReLa study on digits_lt", "Show more")
    page.click("//*[normalize-space()='Show more']")
    page.sees(
        "Pareto front", "fedrela-bench tune", f"fedrela-bench report {opened.out}", "models:/m-", "How to read it"
    )
    page.picture("4_study")
    baseline = page.target("//a[normalize-space()='baseline']")
    page.open(baseline)
    page.sees(opened.name("trunk"), "It is the baseline of this seed")
    page.open(f"{baseline}/artifacts")
    page.sees("confusion_test.png")
    page.click("//*[text()='confusion_test.png']")
    wide = "return Array.from(document.images).some(image => image.naturalWidth > 400)"
    page.until("the picture", lambda: page.script(wide))
    page.picture("5_confusion")


def test_a_cell_shows_its_dataset_and_its_model(page: Page, opened: Opened) -> None:
    show_runs(page, opened)
    best = next(name for name in opened.facts["best"].values())
    record = next(record for record in opened.records if record.id == best)
    page.click(f"//a[normalize-space()='{run_name(record, opened.facts)}']")
    page.sees("Datasets", record.tags["data_digest"], "Logged models", record.algorithm)
    page.picture("6_cell")
    page.click("(//*[starts-with(normalize-space(), 'digits_lt (')])[last()]")
    page.sees("training images per class", "groups")
    page.picture("7_dataset")
