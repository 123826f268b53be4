"""The report as one HTML page, which needs no network and no other file.

Every text that comes from a model or a record passes through `escape`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from . import charts
from .facts import KernelFacts, Report, TaskFacts, shortened
from .style import SCRIPT, STYLE, policy
from .svg import spark


def page(r: Report) -> str:
    """The HTML text."""
    sections = (_summary(r), _charts(r), _kernels(r), _schedules(r), _choices(r), _tasks(r),
                _errors(r))  # fmt: skip
    return framed(f"Tuning of {r.title}", sections)


def framed(title: str, sections: Sequence[str]) -> str:
    """A page with its title and sections of HTML."""
    title = escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}</h1>\n"
        + "\n".join(sections)
        + f"\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _summary(r: Report) -> str:
    trials = sum(len(t.attempts) for t in r.tasks)
    before, after = (_total(r.kernels, side) for side in ("before", "after"))
    facts = {
        "Speedup": f"{r.speedup:.3f}" if r.speedup > 1 else "none: the untuned model is kept",
        "Kernels before": f"{before * 1e3:.3f} ms",
        "Kernels after": f"{after * 1e3:.3f} ms",
        "Trials": f"{trials} for {_count(len(r.tasks), 'workload')}",
        "Failures": f"{sum(t.failures for t in r.tasks)}",
        "Threads": f"{r.threads}",
        "Seconds": ", ".join(f"{t:.0f} {name}" for name, t in r.stages.items()) or "not known",
        "Machine": r.machine,
        "Made by": r.versions,
    }
    items = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()
    )
    return f"<dl>{items}</dl>"


def _charts(r: Report) -> str:
    figures = (
        figure(
            charts.progress(r),
            "Tuning curve: the time of all tuned workloads together with the best candidates "
            "found so far.",
        ),
        figure(
            charts.times(r.kernels),
            "The slowest kernels, ms within the model: outlined before tuning, filled after. "
            "Numbers are those of the table below.",
        ),
        figure(
            charts.scatter(r.tasks),
            "What the analytic model predicts for each candidate and what was measured, both as "
            "shares of the analytic schedule's time. On the line they agree.",
        ),
        *(
            figure(
                chart,
                "The place of each candidate in the cost model's order, as it was when that was "
                "asked, and what was measured. A good order rises from left to right.",
            )
            for chart in filter(None, [charts.order(r.tasks)])
        ),
        figure(
            charts.roofline(r.kernels, r.rates),
            "Roofline: each kernel under the machine's measured limits, an open circle before "
            "tuning, a filled square after. Where a slanted line is lower than the level one, "
            "moving data from there is the limit. Kernels that compute nothing have no place here.",
        ),
    )
    return f'<section><h2>Overview</h2><div class="charts">{"".join(figures)}</div></section>'


def figure(svg: str, caption: str) -> str:
    """A chart with what it shows."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _kernels(r: Report) -> str:
    whole = _total(r.kernels, "after") or 1.0
    rows = [
        [
            cell(i),
            f'<td class="name">{escape(k.title)}<small>{escape(k.name)}</small></td>',
            cell(_ms(k.before.seconds)),
            cell(_ms(k.after.seconds)),
            cell(_ms(k.saved)),
            cell(f"{k.speedup:.2f}"),
            cell(f"{k.after.seconds / whole:.1%}"),
            *(cell(f"{t.gflops:.1f}") for t in (k.before, k.after)),
            *(cell(f"{t.gbytes:.1f}") for t in (k.before, k.after)),
            f"<td>{escape(k.after.bound)}</td>",
        ]
        for i, k in enumerate(r.kernels, 1)
    ]
    columns = ("*", "kernel", "*ms before", "*ms after", "*ms saved", "*speedup", "*share after",
               "*GFLOP/s before", "*GFLOP/s after", "*GB/s before", "*GB/s after", "bound by",
               )  # fmt: skip
    return (
        "<section><h2>Kernels before and after</h2><p>Times within the model, the least of several "
        "runs in turns; those that gained most come first. Kernels that tuning fused in another "
        f"way stand in one row.</p>{table(columns, rows)}</section>"
    )


def _schedules(r: Report) -> str:
    users: dict[tuple[str, tuple[str, ...], str], list[int]] = {}
    for i, k in enumerate(r.kernels, 1):
        for schedule in k.schedules:
            users.setdefault(schedule, []).append(i)
    parts = [
        f"<details><summary>{_where(numbers)}: {escape(head)}</summary>"
        f"<h3>Steps</h3><pre>{escape(chr(10).join(steps)) or 'none: its loops are made directly'}"
        f"</pre><h3>Loops</h3><pre>{escape(loops)}</pre></details>\n"
        for (head, steps, loops), numbers in users.items()
    ]
    return (
        "<section><h2>Schedules</h2><p>What the kernels of the model that was kept do, as steps "
        "and as loops; numbers are those of the table above.</p>"
        f"{''.join(parts) or '<p>None are known.</p>'}</section>"
    )


def _where(numbers: Sequence[int]) -> str:
    distinct = list(dict.fromkeys(numbers))
    return f"{'Kernel' if len(distinct) == 1 else 'Kernels'} {', '.join(map(str, distinct))}"


def _choices(r: Report) -> str:
    rows = [
        [
            f'<td class="name">{escape(c.what)}<small>{escape(shortened(c.sources))}</small></td>',
            f"<td>{escape(str(c.default))}</td>",
            f"<td>{escape(str(c.chosen))}</td>",
            f"<td>{escape(', '.join(f'{v}: {ratio:.3f}' for v, ratio in c.tried.items()))}</td>",
        ]
        for c in sorted(r.choices, key=lambda c: min(c.tried.values(), default=1.0))
    ]
    columns = ("choice", "by the model of costs", "chosen", "ratios measured")
    return (
        "<section><h2>Choices of the whole model</h2><p>Each value tried, with the time that the "
        "kernels of these nodes took with it as a share of that before; inf where the model as a "
        "whole was slower.</p>"
        f"{table(columns, rows) if rows else '<p>None was tried.</p>'}</section>"
    )


def _rank(correlation: float | None) -> str:
    return "" if correlation is None else f"{correlation:.2f}"


def _tasks(r: Report) -> str:
    whole = sum(t.seconds for t in r.tasks) or 1.0
    has_scores = any(t.placed for t in r.tasks)
    rows = [
        [
            f'<td class="name">{escape(t.label)}<small>{escape(_decisions(t))}</small></td>',
            cell(_ms(t.seconds)),
            cell(f"{t.seconds / whole:.1%}"),
            cell(f"{t.best:.3f}"),
            f"<td>{_spark(t)}</td>",
            cell(len(t.attempts)),
            cell(t.failures),
            cell(_rank(t.correlation)),
            *([cell(_rank(t.score_correlation))] if has_scores else []),
        ]
        for t in r.tasks
    ]
    columns = ("workload and its best decisions", "*ms untuned", "*share", "*best ratio",
               "over trials", "*trials", "*failures", "*rank correlation",
               *(["*of the cost model"] if has_scores else []))  # fmt: skip
    curves = "".join(
        f"<details><summary>{escape(t.label)}: {_count(len(t.attempts), 'trial')}, "
        f"best {t.best:.3f}</summary>{charts.trials(t)}</details>\n"
        for t in r.tasks
        if t.attempts
    )
    return (
        "<section><h2>Workloads</h2><p>Kernels that compute the same are one workload. Ratios are "
        "to the time of the analytic schedule, measured in turns with it; the rank correlation is "
        "between measured ones and those that the analytic model predicts"
        f"{', and the scores of the cost model' if has_scores else ''}.</p>{table(columns, rows)}"
        f"<h3>Trials, each a circle, and the best so far</h3>{curves or '<p>There are none.</p>'}"
        "</section>"
    )


def _spark(t: TaskFacts) -> str:
    if not t.attempts:
        return ""
    return spark(t.curve, f"{t.label}: best ratio over {_count(len(t.attempts), 'trial')}")


def _decisions(t: TaskFacts) -> str:
    if t.winner is None:
        return "the analytic schedule"
    return ", ".join(f"{k} = {json.dumps(v)}" for k, v in t.winner.items())


def _errors(r: Report) -> str:
    if not r.errors:
        return "<section><h2>Failures</h2><p>No candidate failed.</p></section>"
    rows = [
        [cell(n), f"<td>{escape(status)}</td>", f'<td class="name">{escape(label)}</td>',
         f'<td class="name">{escape(cause)}</td>']
        for (label, status, cause), n in r.errors.items()
    ]  # fmt: skip
    columns = ("*times", "what", "workload", "cause")
    return f"<section><h2>Failures</h2>{table(columns, rows)}</section>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML; columns whose name starts with * are numbers."""
    head = "".join(
        f'<th scope="col" class="n">{escape(c[1:])}</th>'
        if c.startswith("*")
        else f'<th scope="col">{escape(c)}</th>'
        for c in columns
    )
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def cell(value: object) -> str:
    """A cell of a table with a number."""
    return f'<td class="n">{escape(str(value))}</td>'


def _total(kernels: Sequence[KernelFacts], side: str) -> float:
    return sum(getattr(k, side).seconds for k in kernels)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4f}"
