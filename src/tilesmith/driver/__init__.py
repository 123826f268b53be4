"""The compiler from top to bottom.

    model --load--> Graph --GRAPH_PASSES, layout, fuse, place--> Graph of Fused nodes
      --lower_group--> loop IR --LOOP_PASSES--> loop IR
      --expand_math, emit--> LLVM --compile_object--> object code
      --memory plan, entry point, constants--> Program --> Executable

Each distinct fused group is compiled once: its text, without names, is the key in this run and in
the cache on disk.

A module is loaded when one of its names is first used: to load a saved program takes no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from .assembly import assemble, sources
    from .checking import KernelCheck, check, random_inputs
    from .compiler import build, compile, compile_program, load_graph, plan_report
    from .entry import load
    from .kernels import answer, canonical, compile_kernels, kernel_cache, kernel_key, kernel_symbol
    from .passes import GRAPH_PASSES, LOOP_PASSES, graph_passes, optimise, run_loop_passes
    from .session import Question, Session, Tuned, lookup, recorded
    from .tuned import apply_tuning, predicted_seconds, refit

__all__ = [
    "GRAPH_PASSES",
    "LOOP_PASSES",
    "KernelCheck",
    "Question",
    "Session",
    "Tuned",
    "answer",
    "apply_tuning",
    "assemble",
    "build",
    "canonical",
    "check",
    "compile",
    "compile_kernels",
    "compile_program",
    "graph_passes",
    "kernel_cache",
    "kernel_key",
    "kernel_symbol",
    "load",
    "load_graph",
    "lookup",
    "optimise",
    "plan_report",
    "predicted_seconds",
    "random_inputs",
    "recorded",
    "refit",
    "run_loop_passes",
    "sources",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.driver.assembly": ["assemble", "sources"],
        "tilesmith.driver.checking": ["KernelCheck", "check", "random_inputs"],
        "tilesmith.driver.compiler": [
            "build",
            "compile",
            "compile_program",
            "load_graph",
            "plan_report",
        ],
        "tilesmith.driver.entry": ["load"],
        "tilesmith.driver.kernels": [
            "answer",
            "canonical",
            "compile_kernels",
            "kernel_cache",
            "kernel_key",
            "kernel_symbol",
        ],
        "tilesmith.driver.passes": [
            "GRAPH_PASSES",
            "LOOP_PASSES",
            "graph_passes",
            "optimise",
            "run_loop_passes",
        ],
        "tilesmith.driver.session": ["Question", "Session", "Tuned", "lookup", "recorded"],
        "tilesmith.driver.tuned": ["apply_tuning", "predicted_seconds", "refit"],
    },
)
