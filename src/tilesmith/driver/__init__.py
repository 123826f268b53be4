"""The compiler from top to bottom.

    model --load--> Graph --GRAPH_PASSES, layout, fuse, place--> Graph of Fused nodes
      --lower_group--> loop IR --LOOP_PASSES--> loop IR
      --expand_math, emit--> LLVM --compile_object--> object code
      --memory plan, entry point, constants--> Program --> Executable

Each distinct fused group is compiled once: its text, without names, is the key in this run and in
the cache on disk.
"""

from .assembly import assemble, sources
from .checking import KernelCheck, check, random_inputs
from .compiler import build, compile, compile_program, load, load_graph, plan_report
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
