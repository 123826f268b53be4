"""The compiler from top to bottom.

    model --load--> Graph --GRAPH_PASSES, layout, fuse, overwrite--> Graph of Fused nodes
      --lower_group--> loop IR --the backend's loop passes--> loop IR
      --the backend's writer--> LLVM or C --its compiler--> object code
      --memory plan, entry point, constants--> Program --> Executable

Each distinct fused group is compiled once: its text, without names, is the key in this run and in
the cache on disk.

The cache on disk also keeps the whole program of a model.  Modules are loaded when one of their
names is first used, so a cached program does not load the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesmith.support.exports import exports

if TYPE_CHECKING:
    from .assembly.program import assemble
    from .checking import check, random_inputs, references
    from .compiler import build, compile_model, compile_program, load_graph
    from .entry import compile, load
    from .kernels import answer, canonical, compile_kernels, kernels_made
    from .passes import (
        STRICT_LOOP_PASSES,
        graph_passes,
        loop_passes,
        lower_loops,
        optimise,
        run_loop_passes,
    )
    from .request import Request
    from .session import Question, Session, lookup, recorded
    from .tuned import apply_tuning, group_space

__getattr__, __dir__ = exports(
    __name__,
    {
        "tilesmith.driver.assembly.program": "assemble",
        "tilesmith.driver.checking": "check random_inputs references",
        "tilesmith.driver.compiler": "build compile_model compile_program load_graph",
        "tilesmith.driver.entry": "compile load",
        "tilesmith.driver.kernels": "answer canonical compile_kernels kernels_made",
        "tilesmith.driver.passes": "STRICT_LOOP_PASSES graph_passes loop_passes lower_loops "
        "optimise run_loop_passes",
        "tilesmith.driver.request": "Request",
        "tilesmith.driver.session": "Question Session lookup recorded",
        "tilesmith.driver.tuned": "apply_tuning group_space",
    },
)
