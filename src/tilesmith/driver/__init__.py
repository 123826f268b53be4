"""The compiler from top to bottom.

    model --load--> Graph --GRAPH_PASSES, layout, fuse, overwrite--> Graph of Fused nodes
      --lower_group--> loop IR --the backend's loop passes--> loop IR
      --the backend's writer--> LLVM or C --its compiler--> object code
      --memory plan, entry point, constants--> Program --> Executable

Each distinct fused group is compiled once: its text, without names, is the key in this run and in
the cache on disk.

So is the whole program of a model; a module is loaded when one of its names is first used, so that
what is there already takes no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from .assembly.program import assemble
    from .assembly.steps import sources
    from .checking import KernelCheck, check, random_inputs, references
    from .compiler import build, compile_model, compile_program, load_graph, plan_report
    from .entry import compile, load
    from .kernels import (
        answer,
        belongs_here,
        canonical,
        compile_kernels,
        if_possible,
        kernel_key,
        kernels_made,
        tuned_body,
    )
    from .partitioned import check_runs_alone
    from .passes import (
        GRAPH_PASSES,
        STRICT_LOOP_PASSES,
        graph_passes,
        loop_passes,
        lower_loops,
        optimise,
        run_loop_passes,
    )
    from .request import Request
    from .saved.program import SavedProgram, kernel_cache
    from .session import Question, Session, Tuned, lookup, recorded
    from .tuned import apply_tuning, check_constraints, group_space, predicted_seconds, refit

__all__ = [
    "GRAPH_PASSES",
    "STRICT_LOOP_PASSES",
    "KernelCheck",
    "Question",
    "Request",
    "SavedProgram",
    "Session",
    "Tuned",
    "answer",
    "apply_tuning",
    "assemble",
    "belongs_here",
    "build",
    "canonical",
    "check",
    "check_constraints",
    "check_runs_alone",
    "compile",
    "compile_kernels",
    "compile_model",
    "compile_program",
    "graph_passes",
    "group_space",
    "if_possible",
    "kernel_cache",
    "kernel_key",
    "kernels_made",
    "load",
    "load_graph",
    "lookup",
    "loop_passes",
    "lower_loops",
    "optimise",
    "plan_report",
    "predicted_seconds",
    "random_inputs",
    "recorded",
    "references",
    "refit",
    "run_loop_passes",
    "sources",
    "tuned_body",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.driver.assembly.program": ["assemble"],
        "tilesmith.driver.checking": ["KernelCheck", "check", "random_inputs", "references"],
        "tilesmith.driver.compiler": [
            "build",
            "compile_model",
            "compile_program",
            "load_graph",
            "plan_report",
        ],
        "tilesmith.driver.entry": ["compile", "load"],
        "tilesmith.driver.kernels": [
            "answer",
            "belongs_here",
            "canonical",
            "compile_kernels",
            "if_possible",
            "kernels_made",
            "kernel_key",
            "tuned_body",
        ],
        "tilesmith.driver.passes": [
            "GRAPH_PASSES",
            "STRICT_LOOP_PASSES",
            "graph_passes",
            "loop_passes",
            "lower_loops",
            "optimise",
            "run_loop_passes",
        ],
        "tilesmith.driver.partitioned": ["check_runs_alone"],
        "tilesmith.driver.saved.program": ["SavedProgram", "kernel_cache"],
        "tilesmith.driver.request": ["Request"],
        "tilesmith.driver.session": ["Question", "Session", "Tuned", "lookup", "recorded"],
        "tilesmith.driver.assembly.steps": ["sources"],
        "tilesmith.driver.tuned": [
            "apply_tuning",
            "check_constraints",
            "group_space",
            "predicted_seconds",
            "refit",
        ],
    },
)
