"""Run chosen passes and print any stage of the IR.

The input is a model (.onnx), or the text of a graph or of a kernel's loops as this verb prints it;
a graph's text finds its constants in the .npz file beside it, which -o writes.  Without --passes a
model goes through all graph passes and text through none.  --to then goes on below the graph, for
each kernel: nest (loops as lowered), loops (as code generation takes them), llvm, asm.

Example: tilesmith opt resnet50.onnx --passes fold,fuse --print

Example: tilesmith opt resnet50.onnx --to asm --kernel 0 --print
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import ml_dtypes
import numpy as np
import typer

from tilesmith import driver
from tilesmith.cli.arguments import JsonFlag, ShapeOption, parse_shapes, with_options
from tilesmith.cli.console import note, print_json, print_table
from tilesmith.cli.models import read_arrays
from tilesmith.codegen.emit import emit
from tilesmith.codegen.link import assembly
from tilesmith.codegen.math import expand_math
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import constants_of, print_graph
from tilesmith.graph.verify import verify as verify_graph
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.strategy.cpu import lower_group
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

Stage = Literal["graph", "nest", "loops", "llvm", "asm"]
IR = TypeVar("IR", Graph, Func)


@dataclass(frozen=True, slots=True)
class Ran(Generic[IR]):
    """One pass that was run.

    name: the pass.
    result: its result.
    changed: whether the result differs from the input.
    seconds: time that it took.
    """

    name: str
    result: IR
    changed: bool
    seconds: float


@with_options
def command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="An .onnx model or IR text.")],
    options: Options,
    passes: Annotated[
        str | None, typer.Option(help="Passes to run, in this order, separated by commas.")
    ] = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the IR after the last.")] = False,
    print_each: Annotated[
        bool, typer.Option("--print-each", help="Print the IR after each that changed it.")
    ] = False,
    to: Annotated[Stage, typer.Option(help="How far below the graph to go.")] = "graph",
    kernel: Annotated[
        str | None,
        typer.Option(help="Only this kernel: its number, or part of its source nodes' names."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the text to this file.")
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes.")] = False,
    shape: ShapeOption = None,
    json: JsonFlag = False,
) -> None:
    session = driver.Session.of(options)
    graph_passes: Mapping[str, Callable[[Graph], Graph]] = dict(driver.graph_passes(session))
    loop_passes: Mapping[str, Callable[[Func], Func]] = dict(driver.LOOP_PASSES)
    ir = _read(source, parse_shapes(shape), session)
    if list_passes:
        _list(graph_passes if isinstance(ir, Graph) else loop_passes, json)
        return
    show = _show_each if print_each else None
    if isinstance(ir, Graph):
        is_model = source.suffix == ".onnx"
        names = _chosen(passes, graph_passes, everything=is_model or to != "graph")
        ran: Sequence[Ran[Any]] = _run(ir, names, graph_passes, print_graph, show)
        graph = ran[-1].result if ran else ir
        verify_graph(graph, after=names[-1] if names else "reading")
        constants = constants_of(graph) if to == "graph" else {}
        texts = (
            [("graph", print_graph(graph))]
            if to == "graph"
            else _kernels(graph, to, kernel, session)
        )
    else:
        names = _chosen(passes, loop_passes, everything=False)
        ran = _run(ir, names, loop_passes, print_func, show)
        func = ran[-1].result if ran else ir
        constants = {}
        texts = [(func.name, _func_text(func, "nest" if to == "graph" else to, session))]
    text = "\n".join(t if t.endswith("\n") else t + "\n" for _, t in texts)
    if output:
        _write(output, text, constants)
    if json:
        print_json(
            {
                "passes": [
                    {"name": r.name, "changed": r.changed, "seconds": r.seconds} for r in ran
                ],
                "texts": [{"name": name, "text": t} for name, t in texts],
            }
        )
    elif print_:
        print(text, end="")
    elif not output:
        rows = [(r.name, "yes" if r.changed else "no", f"{r.seconds * 1e3:.1f}") for r in ran]
        print_table(("pass", "changed", ">ms"), rows)


def _read(path: Path, shapes: Mapping[str, Sequence[int]] | None, session: Any) -> Graph | Func:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    if path.suffix == ".onnx":
        return driver.load_graph(path, shapes, session)
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise UsageError(
            f"{str(path)!r} is neither an .onnx model nor the text of a graph or kernel"
        ) from None
    if not text.lstrip().startswith("graph "):
        return parse_func(text)
    constants = path.with_suffix(".npz")
    return parse_graph(text, _load_constants(constants) if constants.is_file() else {})


def _chosen(passes: str | None, known: Mapping[str, object], everything: bool) -> list[str]:
    if passes is None:
        return list(known) if everything else []
    names = [name.strip() for name in passes.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"unknown pass {name!r}; passes here are {', '.join(known)}")
    return names


def _run(
    ir: IR,
    names: Sequence[str],
    passes: Mapping[str, Callable[[IR], IR]],
    text: Callable[[IR], str],
    show: Callable[[str, str], None] | None,
) -> list[Ran[IR]]:
    ran: list[Ran[IR]] = []
    for name in names:
        start = time.perf_counter()
        result = passes[name](ir)
        ran.append(Ran(name, result, result is not ir, time.perf_counter() - start))
        if show is not None and result is not ir:
            show(name, text(result))
        ir = result
    return ran


def _show_each(name: str, text: str) -> None:
    print(f"# after {name}\n{text}")


def _list(passes: Mapping[str, object], json: bool) -> None:
    if json:
        print_json(list(passes))
    else:
        print("\n".join(passes))


def _kernels(graph: Graph, to: Stage, which: str | None, session: Any) -> list[tuple[str, str]]:
    """The text at stage `to` of each fused group that `which` selects, headed by its source."""
    groups = [(n, n.op) for n in graph.nodes if isinstance(n.op, Fused)]
    if not groups:
        raise UsageError(f"--to {to} needs kernels, and the graph has no fused groups: run 'fuse'")
    found: list[tuple[str, str]] = []
    for number, (node, op) in enumerate(groups):
        if (
            which is not None
            and which != str(number)
            and (which.isdecimal() or which not in node.loc)
        ):
            continue
        func = lower_group(driver.canonical(op.body), session.target, f"kernel{number}")
        mark = ";" if to == "llvm" else "#"
        head = f"{mark} kernel {number}: {node.loc}\n"
        found.append((f"kernel{number}", head + _func_text(func, to, session)))
    if not found:
        raise UsageError(
            f"there is no kernel {which!r}; kernels are numbered 0 to {len(groups) - 1}"
        )
    return found


def _func_text(func: Func, to: Stage, session: Any) -> str:
    if to == "nest":
        return print_func(func)
    final = driver.run_loop_passes(func, session)
    if to == "loops":
        return print_func(final)
    code = emit(expand_math(final, session.target), session.target).llvm_text
    return code if to == "llvm" else assembly(code, session.target)


def _write(path: Path, text: str, constants: Mapping[str, np.ndarray]) -> None:
    try:
        path.write_text(text)
        note(f"wrote {path}")
        if constants:
            beside = path.with_suffix(".npz")
            # NumPy's format has no bfloat16; the name says when the bits are one.
            np.savez(
                beside,
                **{  # type: ignore[arg-type]  # no digest is called allow_pickle
                    f"{k}.bf16" if a.dtype == ml_dtypes.bfloat16 else k: a.view(np.uint16)
                    if a.dtype == ml_dtypes.bfloat16
                    else a
                    for k, a in constants.items()
                },
            )
            note(f"wrote {beside} (its constants)")
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None


def _load_constants(path: Path) -> dict[str, np.ndarray]:
    return {
        k.removesuffix(".bf16"): a.view(ml_dtypes.bfloat16) if k.endswith(".bf16") else a
        for k, a in read_arrays(path).items()
    }
