"""The part of `explain` about layers on an accelerator: the use of its matrix unit, and the layers
that stay on the CPU.
"""

from __future__ import annotations

from typing import Any

from tilesmith.runtime.program import Program

from .console import print_table


def layer_rows(program: Program) -> list[dict[str, Any]]:
    """A row for each layer on the accelerator, and for each that stays on the CPU.  Empty for
    targets without an accelerator.
    """
    rows: list[dict[str, Any]] = []
    if program.host_calls:
        from tilesmith.accel.report import layers_in  # imported late: few models need it

        for name, operator, counts in layers_in(program):
            rows.append(
                {
                    "name": name,
                    "operator": operator,
                    "cycles": counts.cycles,
                    "utilisation": counts.utilisation,
                    "of_bound": counts.cycles / counts.bound,
                }
            )
    for name, operator, why in program.metadata.get("left", ()):
        rows.append({"name": name, "operator": operator, "on_cpu": why})
    return rows


def show_layers(rows: list[dict[str, Any]]) -> None:
    """Print the rows of `layer_rows`, if there are any."""
    if not rows:
        return
    ours = [row for row in rows if "cycles" in row]
    table = [
        (
            row["name"],
            row["operator"],
            str(row["cycles"]),
            f"{row['utilisation']:.0%}",
            f"{row['of_bound']:.2f}",
        )
        for row in ours
    ]
    if ours:
        print_table(
            ("layer", "operator", ">cycles", ">matrix unit", ">of bound"),
            table,
            title="accelerator",
        )
        total = sum(row["cycles"] for row in ours)
        used = sum(row["cycles"] * row["utilisation"] for row in ours) / total
        print(f"{total} cycles of one image in {len(ours)} layers, {used:.0%} of the matrix unit")
    for row in rows:
        if "on_cpu" in row:
            print(f"on the CPU: {row['operator']} {row['name']} ({row['on_cpu']})")
