"""Print any stage of a compilation, from a model or from the text of an earlier stage.

A model goes through the same stages as in `compile`, with the same tuning records and constraints.
--to names the last stage:

  a graph pass  one of those that --list names
  graph         all graph passes
  schedule      what was decided about each kernel, and its schedule
  nest          each kernel's loops as lowered
  a loop pass   one of those that --list names for a kernel's text
  loops         all loop passes
  code          what the backend writes: LLVM or C
  asm           machine code
  program       the main program: calls, copies, branches, loops, memory

The source may also be text that this verb printed: a graph, or the loops of a kernel.  A graph's
constants are in the .npz file beside it, which -o writes.  Without --to, --from and --passes the
text is printed as it is.  Without --from, a graph without kernels counts as a model, and loops as
those of nest or of loops.

--form anf prints graphs in A-normal form, with a let for each value.  Both forms are read back.

Example: tilesmith opt resnet50.onnx --to schedule --kernel 0 --print

Example: tilesmith opt resnet50.onnx --passes fold,fuse --print

Example: tilesmith opt kernel.txt --from flatten --to asm --print
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args

import numpy as np
import typer

from tilesmith import driver
from tilesmith.cli.arguments import JsonFlag, with_options
from tilesmith.cli.console import note, print_json, print_table
from tilesmith.cli.outputs import apart_from, check_output
from tilesmith.driver import Session
from tilesmith.driver.kernels import if_possible
from tilesmith.driver.request import Request
from tilesmith.frontend.load import recognised
from tilesmith.frontend.onnx import ONNX
from tilesmith.frontend.onnx.view import save_view
from tilesmith.graph.control import nodes_in
from tilesmith.graph.nodes import Fused, Graph
from tilesmith.graph.parse import parse_graph
from tilesmith.graph.text import Form, constants_of, print_graph
from tilesmith.graph.verify import verify as verify_graph
from tilesmith.ir.dtypes import dtype
from tilesmith.loop.compare import structural_equal
from tilesmith.loop.nodes import Func
from tilesmith.loop.parse import parse_func
from tilesmith.loop.text import print_func
from tilesmith.loop.verify import STAGES, Stage
from tilesmith.loop.verify import verify as verify_loops
from tilesmith.program.text import print_program
from tilesmith.runtime.arrays import as_stored, is_foreign
from tilesmith.strategy.group import STEP
from tilesmith.support.array_files import read_arrays
from tilesmith.support.depth import depth_checked
from tilesmith.support.errors import UsageError, VerifyError
from tilesmith.support.folders import write_text, written
from tilesmith.te.knobs import Config, Decisions

IR = TypeVar("IR", Graph, Func)
GRAPH, SCHEDULE, NEST, LOOPS, CODE, ASM = "graph", "schedule", "nest", "loops", "code", "asm"
PROGRAM = "program"
Show = Callable[[str, str], None]


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
@depth_checked(UsageError, "the program", "see with --to which pass can't walk it")
def command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A model of any format, or IR text.")
    ],
    wanted: Request,
    passes: Annotated[
        str | None, typer.Option(help="Passes to run, in this order, separated by commas.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="The pass that left the text, or nest.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Last stage: a pass, graph, schedule, nest, loops, code, asm or program."
        ),
    ] = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the IR after the last.")] = False,
    form: Annotated[
        str, typer.Option(help="How graphs are printed: graph, or anf with a let for each value.")
    ] = "graph",
    print_each: Annotated[
        bool, typer.Option("--print-each", help="Print the IR after each that changed it.")
    ] = False,
    kernel: Annotated[
        str | None,
        typer.Option(help="Only this kernel: its number, or part of its source nodes' names."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the text, or a graph as .onnx for Netron, to this file."
        ),
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes.")] = False,
    json: JsonFlag = False,
) -> None:
    if output is not None:
        check_output(output)
    if form not in get_args(Form):
        raise UsageError(f"--form {form}: the forms are {', '.join(get_args(Form))}")
    text_of = partial(print_graph, form="anf" if form == "anf" else "graph")
    session = driver.Session.of_request(wanted)
    is_model = _is_model(source)
    ir = driver.load_graph(replace(wanted, model=source), session) if is_model else _text(source)
    with driver.recorded(session) as session:
        graph_passes, loop_passes = dict(driver.graph_passes(session)), _loop_passes(session)
        known = graph_passes if isinstance(ir, Graph) else loop_passes
        if list_passes:
            _list(known, json)
            return
        if from_ == NEST and isinstance(ir, Func):
            from_ = None
        stages = (*graph_passes, GRAPH, SCHEDULE, NEST, *loop_passes, LOOPS, CODE, ASM, PROGRAM)
        for option, name, allowed in (("--from", from_, (*known,)), ("--to", to, stages)):
            if name is not None and name not in allowed:
                raise UsageError(f"{option} {name}: the stages are {', '.join(allowed)}")
        if not is_model:
            _check_text(ir, source, from_, session)
        show = _show_each if print_each else None
        asks = passes is not None or from_ is not None or to is not None
        constants: Mapping[str, np.ndarray] = {}
        shown: Graph | None = None
        ran: Sequence[Ran[Any]] = ()
        if to == PROGRAM:
            texts = _programs(ir, passes, from_, session)
        elif isinstance(ir, Graph):
            to = to or GRAPH
            is_open = asks or is_model
            if (
                passes is None
                and from_ is None
                and any(isinstance(n.op, Fused) for _, n in nodes_in(ir))
            ):
                is_open = False  # the graph was fused, so all passes have run
            names = _chosen(passes, graph_passes, from_, to, is_open)
            ran = _run(ir, names, graph_passes, text_of, show)
            graph = ran[-1].result if ran else ir
            verify_graph(graph, after=names[-1] if names else "reading")
            if to == GRAPH or to in graph_passes:
                shown, constants = graph, constants_of(graph)
                texts = [_Text(GRAPH, text_of(graph))]
            else:
                texts = _kernels(graph, to, kernel, session, show)
        else:
            if to in (GRAPH, SCHEDULE) or to in graph_passes:
                raise UsageError(f"--to {to}: a kernel's loops are past that stage")
            if from_ is None and asks and passes is None and not _is(ir, "nest"):
                from_ = list(loop_passes)[-1]
                if not _is(ir, "final"):
                    raise UsageError("say with --from which pass left these loops")
            names = _chosen(passes, loop_passes, from_, to or LOOPS, asks and to != NEST)
            ran = _run(ir, names, loop_passes, print_func, show)
            func = ran[-1].result if ran else ir
            if to in (LOOPS, CODE, ASM):
                _check_final(func, ir, passes, from_, loop_passes)
            text = _code(func, to, session) if to in (LOOPS, CODE, ASM) else print_func(func)
            texts = [_Text(func.name, text)]
    text = "\n".join(t.text if t.text.endswith("\n") else t.text + "\n" for t in texts)
    if output and output.suffix == ".onnx":
        if shown is None:
            raise UsageError(f"{str(output)!r} is for a graph; loops and code are text")
        save_view(shown, output)
        note(f"wrote {output}, to be looked at with Netron")
    elif output:
        _write(output, text, constants)
    if json:
        passes_run = [{"name": r.name, "changed": r.changed, "seconds": r.seconds} for r in ran]
        with apart_from(output):
            print_json({"passes": passes_run, "texts": [t.to_json() for t in texts]})
    elif print_:
        print(text, end="")
    elif not output:
        rows = [(r.name, "yes" if r.changed else "no", f"{r.seconds * 1e3:.1f}") for r in ran]
        print_table(("pass", "changed", ">ms"), rows)


def _is_model(path: Path) -> bool:
    """Whether a file or folder is a source model, and not the text of a graph or kernel."""
    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}")
    if path.suffix == ".onnx" or recognised(path)[0] is not ONNX:
        return True
    try:
        path.read_text()
    except UnicodeDecodeError:
        return True  # ONNX files have no signature
    return False


def _text(path: Path) -> Graph | Func:
    text = path.read_text()
    if not text.lstrip().startswith("graph "):
        return parse_func(text)
    constants = path.with_suffix(".npz")
    return parse_graph(text, _load_constants(constants) if constants.is_file() else {})


def _check_text(ir: Graph | Func, path: Path, after: str | None, session: Session) -> None:
    """Raises UsageError for text that is not a valid program, for instance with wrong types.

    after: the pass that wrote a kernel's loops; without it they may come from any stage.
    """
    try:
        if isinstance(ir, Graph):
            verify_graph(ir)
            return
        stages: dict[str, Stage] = {p.name: p.stage for p in driver.loop_passes(session)}
        possible = STAGES if after is None else (stages[after],)
        if not any(_is(ir, stage) for stage in possible):
            verify_loops(ir, possible[0], is_users=True)
    except VerifyError as e:
        raise UsageError(f"{str(path)!r} is no program: {e}") from None


def _check_final(
    func: Func,
    text: Func,
    chosen: str | None,
    after: str | None,
    passes: Mapping[str, Callable[[Func], Func]],
) -> None:
    """Raises UsageError for loops that are not final because of the requested passes.

    func: the loops after the requested passes.
    text: the loops that were read.
    chosen: the option --passes, or None.
    after: the option --from: the pass that wrote `text`, or None.  If this pass would change
        `text`, it did not write it, and the message says so.
    passes: the loop passes by name.
    """
    if _is(func, "final"):
        return
    try:
        verify_loops(func, "final", is_users=True)
    except VerifyError as e:
        if chosen is not None:
            raise UsageError(
                f"--passes {chosen}: the loops are not final: {e}; name all passes that they need"
            ) from None
        if after is not None and not structural_equal(passes[after](text), text):
            raise UsageError(
                f"--from {after}: the text is not what this pass leaves: {e}; say with --from "
                "which pass left these loops"
            ) from None


def _chosen(
    passes: str | None, known: Mapping[str, object], after: str | None, to: str, is_open: bool
) -> list[str]:
    """The passes to run, by name.

    passes: the option --passes, or None.  Without it, the passes after `after` up to `to` run if
        `is_open`, else none.
    known: the existing passes, in order.
    """
    every = list(known)
    if passes is None:
        first = every.index(after) + 1 if after is not None else 0
        last = every.index(to) + 1 if to in known else len(every)
        if first > last:
            raise UsageError(f"--to {to} comes before --from {after}")
        return every[first:last] if is_open else []
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
    show: Show | None,
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


@dataclass(frozen=True, slots=True)
class _Text:
    """One text of the output.

    decisions: what records and constraints decide about the kernel; empty if only rules decide.
    """

    name: str
    text: str
    decisions: Decisions = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "text": self.text, "decisions": dict(self.decisions)}


def _kernels(
    graph: Graph, to: str, which: str | None, session: Session, show: Show | None
) -> list[_Text]:
    """The text at stage `to` of each fused group that `which` selects: a number, part of a source
    node's name, or None for all.  A comment before each text names the source nodes.
    """
    if not any(isinstance(n.op, Fused) for _, n in nodes_in(graph)):
        raise UsageError(f"--to {to} needs kernels, and the graph has no fused groups: run 'fuse'")
    tuned, decisions = driver.apply_tuning(graph, session)
    groups = [(n, n.op) for _, n in nodes_in(tuned) if isinstance(n.op, Fused)]
    mark = ";" if to == CODE else "#"
    texts: list[_Text] = []
    for number, (node, op) in enumerate(groups):
        if (
            which is not None
            and which != str(number)
            and (which.isdecimal() or which not in node.loc)
        ):
            continue
        name = f"kernel{number}"
        func, chosen = _lowered(op.body, name, decisions.get(node, {}), session)
        head = f"{mark} kernel {number}: {node.loc}\n"
        if chosen:
            head += f"{mark} decided: {dumps(dict(chosen))}\n"
        texts.append(_Text(name, head + _stage(func, to, session, show), chosen))
    if not texts:
        raise UsageError(
            f"there is no kernel {which!r}; kernels are numbered 0 to {len(groups) - 1}"
        )
    return texts


def _programs(
    ir: Graph | Func, passes: str | None, from_: str | None, session: Session
) -> list[_Text]:
    """The text of a model's main program, then the texts of its parts."""
    is_open = passes is None and from_ is None
    if (
        not is_open
        or not isinstance(ir, Graph)
        or any(isinstance(n.op, Fused) for _, n in nodes_in(ir))
    ):
        raise UsageError(
            f"--to {PROGRAM} takes a model, or a graph without kernels, through all passes; leave "
            "out --passes and --from"
        )
    program = driver.compile_program(ir, session)
    texts = [_Text("main", print_program(program.main))]
    for i, part in enumerate(program.parts):
        head = f"# part {i}: {part.target.name}\n"
        texts.append(_Text(f"part{i}", head + print_program(part.main)))
    return texts


def _lowered(
    body: Graph, name: str, decisions: Decisions, session: Session
) -> tuple[Func, Decisions]:
    """The loops of a kernel as a compilation makes them, and the decisions for its schedule."""

    def lowered(chosen: Decisions) -> tuple[Func, Decisions]:
        plain = driver.canonical(body)
        return session.group(plain).lower(name, Config(chosen)), chosen

    return if_possible(decisions, session, lowered)


def _stage(nest: Func, to: str, session: Session, show: Show | None) -> str:
    """The text at stage `to` of a kernel whose loops are `nest`."""
    if to == SCHEDULE:
        steps = [str(value) for key, value in nest.attrs if key == STEP]
        return "\n".join(steps or ["# no schedule: the loops are made directly"])
    if to == NEST:
        return print_func(nest)
    passes = _loop_passes(session)
    ran = _run(nest, _chosen(None, passes, None, to, True), passes, print_func, show)
    func = ran[-1].result
    return print_func(func) if to in passes else _code(func, to, session)


def _loop_passes(session: Session) -> Mapping[str, Callable[[Func], Func]]:
    return {p.name: p.run for p in driver.loop_passes(session)}


def _is(func: Func, stage: Stage) -> bool:
    """Whether loops satisfy the rules of `stage`."""
    try:
        verify_loops(func, stage)
    except VerifyError:
        return False
    return True


def _code(func: Func, to: str | None, session: Session) -> str:
    """The text of final loops, or of their code.  Raises VerifyError for other loops."""
    verify_loops(func, "final")
    if to == LOOPS:
        return print_func(func)
    backend, target = session.backend, session.target
    final = backend.lower_intrinsics(func, target)
    text = backend.emit(final, target, strict=session.options.is_strict).text
    return text if to == CODE else backend.tools.assembly(text, target)


def _write(path: Path, text: str, constants: Mapping[str, np.ndarray]) -> None:
    try:
        write_text(path, text)
        note(f"wrote {path}")
        if constants:
            beside = path.with_suffix(".npz")
            # NumPy's format has no bfloat16, for example; the name records the type.
            named = {
                f"{k}.{dtype(a.dtype)}" if is_foreign(a.dtype) else k: as_stored(a)
                for k, a in constants.items()
            }
            with written(beside) as f:
                np.savez(f, **named)  # type: ignore[arg-type]  # no digest is called allow_pickle
            note(f"wrote {beside} (its constants)")
    except OSError as e:
        raise UsageError(f"{str(path)!r} can't be written: {e.strerror or e}") from None


def _load_constants(path: Path) -> dict[str, np.ndarray]:
    constants: dict[str, np.ndarray] = {}
    for name, array in read_arrays(path).items():
        digest, _, foreign = name.partition(".")
        constants[digest] = array.view(dtype(foreign).numpy) if foreign else array
    return constants
