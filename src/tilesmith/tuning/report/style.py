"""Style sheet of a report, the lines of script that sort its tables, and its fixed texts."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { color-scheme: light dark; --ink: #1a1c20; --soft: #5d636e; --paper: #ffffff;
--line: #d8dbe1; --field: #f6f7f9; --before: #b4540a; --after: #0b62b8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --soft: #9aa1ad; --paper: #16181c;
--line: #343942; --field: #1d2025; --before: #f0a35e; --after: #6cb4ff; } }
body { margin: 0 auto; max-width: 1180px; padding: 1.5rem; background: var(--paper);
color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; } h3 { font-size: .9rem; margin: .9rem 0 .3rem; }
p, figcaption { color: var(--soft); max-width: 75ch; margin: 0 0 .8rem; }
figcaption { font-size: .88rem; line-height: 1.4; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.4rem; margin: 1rem 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-size: 1.1rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr));
gap: 1.5rem 2rem; } figure { margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%;
font-size: .9rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top;
border-bottom: 1px solid var(--line); } tbody tr:hover { background: var(--field); }
th { font-weight: 600; vertical-align: bottom; } td.n, th.n { text-align: right; }
td.n { white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
td.name { min-width: 15rem; overflow-wrap: anywhere; }
small { display: block; color: var(--soft); overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .7rem; margin: 0 0 .7rem; background: var(--field);
border-radius: 4px; font: 12.5px/1.45 ui-monospace, monospace; }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; } details svg { max-width: 620px; }
svg { width: 100%; height: auto; } svg.spark { width: 120px; height: 24px; }
svg text { fill: var(--soft); font-size: 11px; } svg .across { text-anchor: middle; }
svg .up { text-anchor: end; } svg .note { paint-order: stroke; stroke: var(--paper);
stroke-width: 5px; stroke-linejoin: round; } svg .frame, svg path { fill: none; }
svg .frame, svg .grid { stroke: var(--line); } svg .roof, svg .even { stroke: var(--soft);
stroke-dasharray: 5 4; } svg path.after { stroke: var(--after); stroke-width: 2; }
svg .mark-after { fill: var(--after); } svg .mark-before { fill: none; stroke: var(--before);
stroke-width: 1.6; }
@media print { details { break-inside: avoid; } }
"""

SCRIPT = """
for (const th of document.querySelectorAll("th")) {
  const button = document.createElement("button");
  button.append(...th.childNodes);
  th.append(button);
  button.onclick = () => {
    const up = th.ariaSort === "descending";
    for (const other of th.parentNode.cells) other.ariaSort = null;
    th.ariaSort = up ? "ascending" : "descending";
    const value = row => row.cells[th.cellIndex].textContent;
    const number = row => parseFloat(value(row)) || 0;
    const order = th.className === "n"
      ? (a, b) => number(a) - number(b)
      : (a, b) => value(a).localeCompare(value(b));
    const body = th.closest("table").tBodies[0];
    body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
  };
}
"""
"""A click on a column's head sorts the table by this column, the largest number first.  Without
scripts the page still shows everything.
"""


def policy() -> str:
    """The page's Content-Security-Policy: nothing is loaded, and only `SCRIPT` runs."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
