"""Loop IR to LLVM text.

`emit` turns a `Func` in its final stage into one LLVM module with the function

    i32 @symbol(ptr buffers..., i64 scalars..., ptr workspace, ptr context)

It returns 0, or the code of the failure that it recorded in the context.  `workspace` is 64-byte
aligned.  `runtime/csrc/tilesmith.h` declares the context.  Buffers need only the alignment of their
elements.  A buffer that is written must not overlap another one, except that `shared` buffers may
be the same memory.  Parallel loops inside a parallel loop run serially.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tilesmith.ir.dtypes import bool_, i64
from tilesmith.ir.expr import Var
from tilesmith.ir.target import LINE_BYTES, Target
from tilesmith.loop.nodes import Buffer, Func
from tilesmith.support.errors import InternalError

from .assertions import INDEX, fail_function
from .context import address
from .kernel import Kernel
from .llvm_text import NONTEMPORAL_NODE
from .module import Module, module_of
from .statements import Statements
from .streaming import streamed


def emit(
    func: Func, target: Target, *, shared: Collection[int] = (), strict: bool = False
) -> Kernel:
    """LLVM text of `func` (stage "final", mathematics expanded) for `target`.

    shared: numbers of the buffer parameters that may share memory with one another.  Each element
        of shared memory is read before it is written.
    strict: whether all results equal the interpreter's, including signs of zeros.  Products and
        sums are then not contracted.

    Raises InternalError for forms that an earlier pass should have removed.
    """
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", func.name)
    module = module_of(func, target, symbol, shared, strict)
    large = streamed(func, module.survey.loaded, target)
    definitions = _definitions(func, module, large)
    parts = [
        f"; {' '.join(func.name.split())}",
        *([fail_function(symbol)] if module.messages else []),
        *module.functions,
        *definitions,
        *declarations(module),
        _attributes(target),
        *([NONTEMPORAL_NODE] if module.streams else []),
    ]
    return Kernel(
        symbol,
        "\n\n".join(parts) + "\n",
        module.workspace.shared_bytes,
        module.workspace.per_thread_bytes,
        tuple(module.messages),
    )


def emit_bare(func: Func, target: Target) -> str:
    """LLVM text of a function that has no workspace and context parameters: `i32 @name(ptr
    buffers..., i64 scalars...)`.

    Raises InternalError if `func` needs a workspace or a context, because it has heap memory,
    threads or assertions.
    """
    module = module_of(func, target, func.name)
    top = _body(func, module, frozenset())
    if module.workspace.offsets or module.functions or module.messages:
        raise InternalError(f"'{func.name}' has no context, and needs one")
    params = ", ".join(f"{t} {n}" for t, n in parameters(func, module)[:-2])
    text = top.b.function(f"i32 @{func.name}({params})")
    return "\n\n".join([text, *declarations(module), _attributes(target)]) + "\n"


def _definitions(func: Func, module: Module, large: frozenset[Buffer]) -> list[str]:
    """The text of the kernel's function, as a list of definitions.

    With streaming stores to the buffers `large` there are two versions of the code.  The streaming
    version runs if all of these buffers start at a cache line.
    """
    symbol = module.symbol
    first = _body(func, module, large)
    params = parameters(func, module)
    arguments = ", ".join(f"{t} {n}" for t, n in params)
    if not module.streams:
        return [first.b.function(f"i32 @{symbol}({arguments})")]
    forms = {"streaming": first, "plain": _body(func, module, frozenset())}
    definitions = [
        top.b.function(f"internal i32 @{symbol}.{form}({arguments})") for form, top in forms.items()
    ]
    chooser = Statements(module)
    pointers = [first.env.pointers[b] for b in func.buffers if b in large]
    places = [chooser.emit(f"ptrtoint ptr {p} to i64") for p in pointers]
    together = places[0]
    for p in places[1:]:
        together = chooser.emit(f"or i64 {together}, {p}")
    rest = chooser.emit(f"and i64 {together}, {LINE_BYTES - 1}")
    chooser.b.branch(chooser.emit(f"icmp eq i64 {rest}, 0"), *forms)
    passed = ", ".join(f"{t.split(' ')[0]} {n}" for t, n in params)
    for form in forms:
        chooser.b.start_block(form)
        status = chooser.emit(f"call i32 @{symbol}.{form}({passed})")
        chooser.b.do(f"ret i32 {status}")
    return [*definitions, chooser.b.function(f"i32 @{symbol}({arguments})")]


def _body(func: Func, module: Module, large: frozenset[Buffer]) -> Statements:
    """The statements of the whole kernel.  The functions of its parallel loops are added to the
    module.
    """
    module.streamed = large
    top = Statements(module)
    bind_parameters(func, top)
    top.statement(func.body)
    top.settle()
    if INDEX in module.messages:  # a bad index does not stop the kernel
        where = top.emit(address("failure_code"))
        top.b.do(f"ret i32 {top.emit(f'load i32, ptr {where}, align 4')}")
    else:
        top.b.do("ret i32 0")
    module.streams = module.streams or top.memory.streams
    return top


def parameters(func: Func, module: Module) -> list[tuple[str, str]]:
    """The type (with its attributes) and the name of each parameter."""
    params: list[tuple[str, str]] = []
    for i, buffer in enumerate(func.buffers):
        name = "%" + (re.sub(r"[^A-Za-z0-9_]", "_", buffer.name) or "p") + f".{i}"
        params.append((module.pointer_type(buffer), name))
    scalars = sum(isinstance(p, Var) for p in func.params)
    params += [("i64", f"%s{i}") for i in range(scalars)]
    return [*params, ("ptr noalias", "%workspace"), ("ptr", "%context")]


def bind_parameters(func: Func, top: Statements) -> list[tuple[str, str]]:
    """Bind the buffers and scalars of `func` to its parameters, and return these.  Scalars are
    i64.
    """
    params = parameters(func, top.module)
    for buffer, (_, name) in zip(func.buffers, params, strict=False):
        top.env.pointers[buffer] = name
    scalars = [p for p in func.params if isinstance(p, Var)]
    for v, (_, name) in zip(scalars, params[len(func.buffers) :], strict=False):
        if v.type is not i64 and v.type is not bool_ and not v.type.is_int:
            raise InternalError(
                f"scalar parameter {v.name}: expected an integer or bool, found {v.type}"
            )
        top.env.bind(v, name if v.type is i64 else top.ops.cast(i64, v.type, 1, name))
    return params


def declarations(module: Module) -> list[str]:
    libm = (
        f"declare {t} @{name}({', '.join([t] * n)}) memory(none)"
        for name, t, n in sorted(module.libm)
    )
    return [*libm, *(f"declare i32 @{name}({types})" for name, types in module.called.items())]


def _attributes(target: Target) -> str:
    words = ["nounwind", f'"tune-cpu"="{target.cpu}"']
    # without this attribute LLVM may use registers narrower than the chosen vectors
    if target.vector_bits >= 256:
        words += [
            f'"prefer-vector-width"="{target.vector_bits}"',
            f'"min-legal-vector-width"="{target.vector_bits}"',
        ]
    return f"attributes #0 = {{ {' '.join(words)} }}"
