"""The HTML report of tuning: of made-up facts, and of a model that was tuned."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import tilesmith as ts
from tilesmith.driver.request import Request
from tilesmith.graph.parse import parse_graph
from tilesmith.perf.machine import Machine, Rates
from tilesmith.runtime.profile import KernelTime, Profile
from tilesmith.runtime.program import KernelCall
from tilesmith.tuning.model import tune_model
from tilesmith.tuning.options import TuneOptions
from tilesmith.tuning.report import (
    Attempt,
    ChoiceFacts,
    KernelFacts,
    Report,
    TaskFacts,
    Timing,
    page,
    side_by_side,
)
from tilesmith.tuning.report.svg import Axis, number

RATES = Rates(2, 2e11, 1e12, 5e11, 2e11, 1e11, 9e10, 4e10, 4e10, 2e10, 1e-6)
HOSTILE = """<script>alert("1")</script> & 'q' </pre></title></style>"""
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page whose tags close in order; its text and its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def checked(html: str) -> Page:
    """The page, which loads nothing and runs nothing but its own script."""
    found = Page(html)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", html)
    names = {k for k, _ in found.attributes}
    assert not names & {"src", "href", "srcset", "action", "data"}
    assert not [n for n in names if n.startswith("on")]
    assert found.tags.count("script") == 1 and "iframe" not in found.tags
    return found


def task(label: str, *ratios: float) -> TaskFacts:
    attempts = tuple(
        Attempt(float(i), r, "ok" if math.isfinite(r) else "crash", "", f"c{i}", r * r)
        for i, r in enumerate(ratios, 1)
    )
    best = min([1.0, *ratios])
    return TaskFacts(label, 0.004, best, attempts, {"rows": 6} if best < 1 else None)


def kernel(name: str, before: float, after: float, loops: str = "for i") -> KernelFacts:
    old, new = (Timing(t, 1e6, 1e5, "compute") for t in (before, after))
    return KernelFacts((name,), ("conv",), old, new, (("conv: f32[8]", ("split i",), loops),))


def report(title: str, tasks: list[TaskFacts], kernels: list[KernelFacts]) -> Report:
    return Report(title, "a machine", "tilesmith 9", 2, 1.25, tasks, kernels, RATES)


def test_page_says_everything() -> None:
    tasks = [task("conv a", 1.1, 0.8, math.inf, 0.9, 0.7), task("conv b", 1.2)]
    found = checked(page(report("net.onnx", tasks, [kernel("k1", 2e-3, 1e-3)])))
    words = ("Tuning of net.onnx", "1.250", "conv a", "conv b", "k1", "rows = 6", "split i",
             "for i", "the analytic schedule", "crash", "2.0000", "1.0000", "2.00",
             "200 GFLOP/s", "DRAM 40 GB/s")  # fmt: skip
    for word in words:
        assert word in found.text, word
    assert found.tags.count("svg") == 4 + 2 * 2  # of all, then a small and a large one of each task


def test_scores_of_a_cost_model() -> None:
    plain = task("conv a", 1.1, 0.8, 0.9)
    assert plain.placed == [] and plain.score_correlation is None
    assert "cost model" not in checked(page(report("m", [plain], []))).text
    scores = (7.0, -3.0, 2.0, None)
    attempts = tuple(
        Attempt(1.0, ratio, "ok", "", "c", None, score)
        for ratio, score in zip((1.1, 0.8, math.inf, 0.9), scores, strict=True)
    )
    scored = TaskFacts("conv b", 0.004, 0.8, attempts)
    assert scored.placed == [(1.0, 1.1), (0.0, 0.8)]  # in the middle stands one that failed
    four = TaskFacts("conv c", 0.004, 0.8, (*attempts, Attempt(1.0, 0.9, "ok", score=0.0)))
    assert four.score_correlation == pytest.approx(1.0)
    found = checked(page(report("m", [plain, scored, four], [])))
    assert "of the cost model" in found.text and "place by score" in found.text


def test_choices_and_stages() -> None:
    choice = ChoiceFacts("algorithm", ("a<b", "c"), 0, 4, {2: 0.9, 4: 0.8, 6: math.inf})
    facts = Report("m", "a machine", "t", 1, 1.0, [], [], RATES, [choice], {"searching": 12.3})
    found = checked(page(facts))
    for word in ("algorithm", "a<b c", "2: 0.900, 4: 0.800, 6: inf", "12 searching"):
        assert word in found.text, word


def test_curves_fall() -> None:
    tasks = [task("a", 1.1, 0.8, math.inf, 0.9, 0.7), task("b", 0.9, 1.5)]
    r = report("m", tasks, [])
    assert tasks[0].curve == [1.0, 1.0, 0.8, 0.8, 0.8, 0.7]
    shares = [share for _, share in r.progress]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0 and shares[-1] == pytest.approx((0.7 + 0.9) / 2)
    assert [after for after, _ in r.progress] == sorted(after for after, _ in r.progress)
    for path in re.findall(r'<path class="after" d="([^"]+)"', page(r)):
        ups = [float(u) for u in re.findall(r"(?:V| )([\d.]+)", path)]
        assert ups == sorted(ups)  # downwards on the screen


def test_hostile_names_stay_text() -> None:
    bad = Attempt(1.0, math.inf, "crash", HOSTILE, HOSTILE)
    tasks = [TaskFacts(HOSTILE, 0.001, 1.0, (bad,), {HOSTILE: HOSTILE})]
    k = KernelFacts((HOSTILE,), (HOSTILE,), Timing(1.0, 1.0, 1.0), Timing(0.5, 1.0, 1.0, HOSTILE),
                    ((HOSTILE, (HOSTILE,), HOSTILE),))  # fmt: skip
    facts = Report(HOSTILE, HOSTILE, HOSTILE, 1, 1.0, tasks, [k], RATES)
    found = checked(page(facts))
    assert found.text.count(HOSTILE) >= 10


def test_only_the_known_script_may_run() -> None:
    html = page(report("m", [], []))
    (policy,) = [v for k, v in Page(html).attributes if v.startswith("default-src")]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_nothing_was_tuned() -> None:
    facts = Report("m", "a machine", "tilesmith 9", 1, 1.0, [], [], RATES)
    found = checked(page(facts))
    assert "the untuned model is kept" in found.text and "No candidate failed" in found.text


def test_many_kernels_share_schedules() -> None:
    loops = "for i in range(1024):\n" * 200
    kernels = [kernel(f"layer{i}", 1e-3 * (i + 1), 1e-3, loops) for i in range(150)]
    html = page(report("m", [task(f"t{i}", 0.9) for i in range(150)], kernels))
    found = checked(html)
    assert all(f"layer{i}" in found.text for i in range(150))
    assert found.text.count("for i in range") == 200
    assert "Kernels 1, 2, 3" in found.text
    assert len(html) < 1_000_000


def test_failures_are_counted() -> None:
    tasks = [TaskFacts("a", 1.0, 1.0, (Attempt(0, math.inf, "crash", "SIGSEGV"),) * 3),
             TaskFacts("b", 1.0, 1.0, (Attempt(0, math.inf, "slow"),))]  # fmt: skip
    assert report("m", tasks, []).errors == {("a", "crash", "SIGSEGV"): 3}


def test_rank_correlation() -> None:
    assert task("a", 1.1, 0.8, math.inf, 0.9).correlation == pytest.approx(1)
    assert task("a", 1.1, 0.8).correlation is None
    attempts = tuple(Attempt(0, r, "ok", predicted=p) for r, p in ((1, 3), (2, 2), (3, 1)))
    assert TaskFacts("a", 1, 1, attempts).correlation == pytest.approx(-1)
    constant = tuple(Attempt(0, r, "ok", predicted=1.0) for r in (1, 2, 3))
    assert TaskFacts("a", 1, 1, constant).correlation is None


def test_kernels_side_by_side() -> None:
    def profile(*kernels: tuple[str, float]) -> Profile:
        times = [
            KernelTime(KernelCall(f"k{i}", (), sources=tuple(names.split())), seconds)
            for i, (names, seconds) in enumerate(kernels)
        ]
        return Profile(tuple(times), 1.0, 1, Machine("cpu", 32, 1 << 20, (RATES,)))

    before = profile(("a b", 3.0), ("c", 1.0), ("d", 0.5))
    after = profile(("a", 1.0), ("b c", 1.5), ("d", 0.6))
    rows = side_by_side(before, after)
    assert [(sorted(k.sources), k.before.seconds, k.after.seconds) for k in rows] == [
        (["a", "b", "c"], 4.0, 2.5),
        (["d"], 0.5, 0.6),
    ]
    assert rows[0].saved == 1.5 and rows[0].speedup == pytest.approx(1.6)


def test_ticks_are_round_and_few() -> None:
    for low, high, log in ((0, 60, False), (0.97, 1, False), (0.1, 1e6, True), (0.8, 1.3, True)):
        ticks = Axis("x", low, high, log).ticks
        assert 2 <= len(ticks) <= 10
        assert all(low <= t <= high and len(number(t)) <= 6 for t in ticks)


def test_report_of_a_tuned_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = """graph net(%x: f32[1,16,9,9]) {
  const %w: f32[32,16,3,3] = @aa
  %0: f32[1,32,9,9] = conv(%x, %w) {pads=(1, 1, 1, 1)}  # "first<i>"
  %1: f32[1,32,9,9] = relu(%0)
  return %1 as "y"
}
"""
    graph = parse_graph(text, {"aa": rng.standard_normal((32, 16, 3, 3)).astype(np.float32)})
    options = ts.Options(cache_dir=tmp_path, threads=1, jobs=1)
    path = tmp_path / "report.html"
    tune_model(Request(graph, options), TuneOptions(trials=4, html=path, search="model"))
    found = checked(path.read_text(encoding="utf-8"))
    assert "place by score" in found.text
    for word in ("first<i>", " workload", "relu", "Loops", "for ", " searching"):
        assert word in found.text, word
