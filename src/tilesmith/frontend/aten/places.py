"""Lines of Python in the traces that PyTorch keeps with the nodes of a graph."""

from __future__ import annotations

_FRAMES = ("torch/fx/", "torch/_", "torch/nn/", "torch/export/")
"""Places in PyTorch, which are named only where a call has no other."""


def line_of(trace: str) -> str:
    """The model's line in a stack trace: "model.py:7 in forward: h = self.conv(x)"; empty if it
    names none.
    """
    places: list[tuple[str, str]] = []
    for line in trace.splitlines():
        text = line.strip()
        if text.startswith('File "'):
            file, _, rest = text.removeprefix('File "').partition('", line ')
            number, _, function = rest.partition(", in ")
            places.append((f"{file}:{number} in {function}", ""))
        elif places and not places[-1][1]:
            places[-1] = (places[-1][0], text)
    own = [p for p in places if not any(f in p[0] for f in _FRAMES)] or places
    if not own:
        return ""
    place, code = own[-1]
    return f"{place}: {code}" if code else place
