"""The beginning of a program's main function: loads, and checks of the context.

Each function gives lines of LLVM text.  `%code.p` is the address of the failure's code.
"""

from __future__ import annotations

from tilesmith.program.functions import SIZES

from .context import ABI, BY_NAME, SIZE, Code, address


def load(name: str) -> list[str]:
    """A field of the context as a value of the same name."""
    type_ = {"u32": "i32"}.get(BY_NAME[name].type, BY_NAME[name].type)
    return [
        f"%{name}.p = {address(name)}",
        f"%{name} = load {type_}, ptr %{name}.p",
    ]


def checks() -> list[str]:
    """Return unless the context is of this version; clear the failure."""
    return [
        *load("abi"),
        *load("size"),
        f"%abi.ok = icmp eq i32 %abi, {ABI}",
        f"%size.ok = icmp uge i32 %size, {SIZE}",
        "%version.ok = and i1 %abi.ok, %size.ok",
        "br i1 %version.ok, label %known, label %unknown",
        "unknown:",
        f"ret i32 {Code.VERSION:d}",
        "known:",
        f"%code.p = {address('failure_code')}",
        f"store i32 {Code.OK:d}, ptr %code.p",
        f"%call.p = {address('failure_call')}",
        "store i32 0, ptr %call.p",
    ]


def find_host(arguments: int) -> list[str]:
    """Return unless there is a host to call; make room for the most arguments of a call."""
    return [
        *load("host"),
        *load("host_data"),
        f"%host.args = alloca [{arguments} x ptr], align 8",
        "%host.ok = icmp ne ptr %host, null",
        "br i1 %host.ok, label %hosted, label %hostless",
        "hostless:",
        f"store i32 {Code.HOST:d}, ptr %code.p",
        f"ret i32 {Code.HOST:d}",
        "hosted:",
    ]


def compute_sizes() -> list[str]:
    """Compute the sizes; return if they are refused."""
    return [
        *load("extents"),
        f"%refused = call i32 @{SIZES}(ptr %extents, ptr %values)",
        "%sizes.ok = icmp eq i32 %refused, 0",
        "br i1 %sizes.ok, label %sized, label %unsized",
        "unsized:",
        "store i32 %refused, ptr %code.p",
        "ret i32 %refused",
        "sized:",
    ]


def check_memory(name: str, needed: str) -> list[str]:
    """Return unless a field of the context is at least `needed` bytes."""
    lines = [
        *load(name),
        f"%{name}.ok = icmp sge i64 %{name}, {needed}",
        f"br i1 %{name}.ok, label %{name}.fits, label %{name}.small",
        f"{name}.small:",
        f"store i32 {Code.MEMORY:d}, ptr %code.p",
        f"%{name}.count = {address('failure_count')}",
        f"store i32 2, ptr %{name}.count",
    ]
    for i, value in enumerate((needed, f"%{name}")):
        lines.append(f"%{name}.v{i} = {address('failure_values', i)}")
        lines.append(f"store i64 {value}, ptr %{name}.v{i}")
    return [*lines, f"ret i32 {Code.MEMORY:d}", f"{name}.fits:"]
