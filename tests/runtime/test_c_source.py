"""C source for microcontrollers: compiled with all warnings, examined, and run: on this machine,
and on emulated Cortex-M processors where the tools are installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from tiny_networks import NETWORKS, quantised

import tilesmith as ts
from tilesmith.codegen.c.compiler import find_compiler
from tilesmith.codegen.c.prelude import definitions
from tilesmith.codegen.c.source import source_kernel
from tilesmith.driver.entry import program_of
from tilesmith.driver.request import Request
from tilesmith.program.functions import ENTRY
from tilesmith.program.visit import calls_of
from tilesmith.runtime.standalone.export import export
from tilesmith.runtime.standalone.objects import Exported
from tilesmith.support.errors import UsageError
from tilesmith.support.options import Options

BOARD = Path(__file__).parent / "board"
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")
ARM = "arm-none-eabi-gcc"
PROCESSORS = {
    "cortex-m3": ("mps2-an385", ("-mfloat-abi=soft",)),
    "cortex-m4": ("mps2-an386", ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")),
    "cortex-m7": ("mps2-an500", ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")),
}
"""The machine of qemu-system-arm that has the processor, and flags of its floats."""

STACK = 1024
"""Bytes of stack that suffice for the deepest call."""


@lru_cache
def model(name: str) -> bytes:
    return quantised(name)


def sample(name: str) -> np.ndarray:
    shape = (1, *NETWORKS[name]().first)
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def written(
    folder: Path, name: str, source: bytes | None = None, target: str = "cortex-m4"
) -> Exported:
    """The source of a network, and a `main.c` that prints its answer to the sample."""
    made = ts.export(source or model(name), folder, name, targets=(target,), format="c")
    numbers = ", ".join(f"{float(v).hex()}f" for v in sample(name).reshape(-1))
    (folder / "main.c").write_text(
        f'#include "{name}.h"\n#include <stdio.h>\nstatic const float x[] = {{{numbers}}};\n'
        f"static float y[{name.upper()}_OUTPUT_0_COUNT];\n"
        f"int main(void) {{\n    int code = (int){name}_run(x, y);\n"
        '    for (size_t i = 0; i < sizeof y / sizeof *y; i++) printf("%.9g\\n", (double)y[i]);\n'
        "    return code;\n}\n"
    )
    return made


def run(command: Sequence[object]) -> str:
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr + found.stdout
    return found.stdout


def numbers(text: str) -> np.ndarray:
    return np.array([float(v) for v in text.split()])


def emulated(machine: str, program: Path) -> str:
    """What a program prints on an emulated board."""
    return run([
        "qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-serial", "null",
        "-semihosting", "-kernel", program,
    ])  # fmt: skip


@pytest.fixture
def compiler() -> tuple[str, ...]:
    try:
        return find_compiler()
    except UsageError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("name", NETWORKS)
def test_source_is_clean_and_gives_the_native_answers(tmp_path, name, compiler) -> None:
    made = written(tmp_path, name)
    program = tmp_path / "program"
    run([*compiler, *STRICT, tmp_path / "main.c", made.library, "-o", program, "-lm"])
    wanted = ts.compile(model(name))(sample(name)).reshape(-1)
    np.testing.assert_allclose(numbers(run([program])), wanted, atol=1e-6 * abs(wanted).max())


def test_floats_too(tmp_path, compiler) -> None:
    plain = NETWORKS["keywords"]().model().SerializeToString()
    made = written(tmp_path, "keywords", plain)
    program = tmp_path / "program"
    run([*compiler, *STRICT, tmp_path / "main.c", made.library, "-o", program, "-lm"])
    wanted = ts.compile(plain)(sample("keywords")).reshape(-1)
    np.testing.assert_allclose(numbers(run([program])), wanted, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_elements_wider_than_a_register(tmp_path, compiler, op) -> None:
    """No 64-bit number fits a register of a Cortex-M7: it has lanes of one element."""
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>'
        "g (int64[5,37,6] x) => (int64[5,6] y) <int64[1] axis = {1}>"
        f"{{ y = {op}<keepdims = 0>(x, axis) }}"
    )
    exported = ts.export(
        made.SerializeToString(), tmp_path, "m", targets=("cortex-m7",), format="c"
    )
    x = np.random.default_rng(5).integers(-(2**40), 2**40, (5, 37, 6))
    (tmp_path / "main.c").write_text(
        '#include "m.h"\n#include <stdio.h>\n'
        f"static const int64_t x[] = {{{', '.join(map(str, x.reshape(-1)))}}};\n"
        "static int64_t y[30];\n"
        "int main(void) {\n    int code = (int)m_run(x, y);\n"
        '    for (int i = 0; i < 30; i++) printf("%lld\\n", (long long)y[i]);\n'
        "    return code;\n}\n"
    )
    program = tmp_path / "program"
    run([*compiler, tmp_path / "main.c", exported.library, "-o", program, "-lm"])
    wanted = x.sum(axis=1) if op == "ReduceSum" else x.max(axis=1)
    assert run([program]).split() == [str(v) for v in wanted.reshape(-1)]


def test_the_text_names_the_nodes_and_needs_nothing_else(tmp_path, compiler) -> None:
    made = written(tmp_path, "keywords")
    text = made.library.read_text()
    assert set(re.findall(r"#include (.*)", text)) == {
        '"keywords.h"', '"tilesmith.h"', "<math.h>", "<stdbool.h>", "<stdint.h>", "<string.h>",
    }  # fmt: skip
    for node in NETWORKS["keywords"]().nodes:
        if node.op_type == "Conv":
            assert node.name in text
    assert not re.search(r"\bdouble\b", text.split("static const struct {")[0])
    if nm := shutil.which("nm"):
        unit = tmp_path / "unit.o"
        run([*compiler, *STRICT, "-c", made.library, "-o", unit])
        needed = {line.split()[-1].split("@")[0] for line in run([nm, "-u", unit]).splitlines()}
        assert needed <= {"memcpy", "memset", "rintf", "fmaxf", "fminf", "_GLOBAL_OFFSET_TABLE_"}


@pytest.mark.parametrize("name", NETWORKS)
def test_memory_is_what_one_kernel_and_the_values_beside_it_need(tmp_path, name) -> None:
    options = Options.from_environment().with_(target="cortex-m4", threads=1)
    program = program_of(Request(model(name), options))
    kernels = {k: source_kernel(v.decode()) for k, v in program.objects.items() if k != ENTRY}
    sizes = {"float": 4, "int32_t": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1}
    calls = []
    for call in calls_of(program.steps):
        buffers = zip(call.args, kernels[call.symbol].buffers, strict=False)
        calls.append({(a.index, sizes[t] * n) for a, (t, n) in buffers if a.kind == "arena"})
    needed = 0
    for i, own in enumerate(calls):
        # what an earlier kernel left for a later one lies beside this kernel's values
        kept = {v for v in set().union(*calls[:i]) & set().union(*calls[i + 1 :])
                if all(v[0] + v[1] <= o[0] or o[0] + o[1] <= v[0] for o in own)}  # fmt: skip
        needed = max(needed, sum(size for _, size in own | kept))
    made = export([program], tmp_path, name, "c")
    assert needed <= made.ram_bytes <= 1.1 * needed


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_emulated_processors_agree(tmp_path, name, processor, request) -> None:
    if not (shutil.which(ARM) and shutil.which("qemu-system-arm")):
        pytest.skip(f"needs {ARM} with newlib, and qemu-system-arm")
    machine, floats = PROCESSORS[processor]
    made = written(tmp_path, name)
    flags = (f"-mcpu={processor}", "-mthumb", *floats)
    unit, program = tmp_path / "unit.o", tmp_path / "program.elf"
    run([ARM, *STRICT, *flags, "-fstack-usage", "-c", made.library, "-o", unit])
    rest = (BOARD / "start.c", tmp_path / "main.c", unit, "--specs=rdimon.specs", "-nostartfiles")
    run([ARM, "-O2", *flags, *rest, "-T", BOARD / "board.ld", "-lm", "-o", program])
    found = numbers(emulated(machine, program))
    wanted = ts.compile(model(name))(sample(name)).reshape(-1)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * abs(wanted).max())
    frames = [int(line.split("\t")[1]) for line in (tmp_path / "unit.su").read_text().splitlines()]
    entry, deepest = sorted(frames)[-2:]
    assert entry + deepest <= STACK


def test_products_of_bytes_are_pairs_where_the_processor_has_them(tmp_path) -> None:
    """Cortex-M4 and M7 multiply two pairs of 16 bits at once; M3 runs the same source without."""
    if not shutil.which(ARM):
        pytest.skip(f"needs {ARM}")
    unit = written(tmp_path, "keywords").library
    for processor, has_pairs in (("cortex-m4", True), ("cortex-m7", True), ("cortex-m3", False)):
        assembly = tmp_path / f"{processor}.s"
        flags = (f"-mcpu={processor}", "-mthumb", *PROCESSORS[processor][1])
        run([ARM, *STRICT, *flags, "-S", unit, "-o", assembly])
        found = set(re.findall(r"\b(?:smlad|uxtb16|sxtb16)\b", assembly.read_text()))
        assert found == ({"smlad", "uxtb16", "sxtb16"} if has_pairs else set())
    plain = written(tmp_path / "m0", "keywords", target="cortex-m0").library
    assert "smlad" not in plain.read_text()


def test_sums_of_pairs_wrap_like_others(tmp_path) -> None:
    """The helper's portable text, and its assembly on an emulated Cortex-M4."""
    numbers = "-2147483648, 255, 255, 255, 255, -128, -128, -128, -128"
    text = (
        definitions(["ts_smlad_u8_i8"])
        + f"""
        #include <stdio.h>
        int main(void) {{
            static const int32_t v[] = {{{numbers}}};
            uint8_t a[5]; int8_t w[5];
            for (int k = 0; k < 4; k++) a[k + 1] = (uint8_t)v[k + 1], w[k + 1] = (int8_t)v[k + 5];
            printf("%ld ", (long)ts_smlad_u8_i8(v[0], a + 1, w + 1));
            a[1] = 1, a[2] = 2, a[3] = 3, a[4] = 250, w[1] = 7, w[2] = -9, w[3] = 127, w[4] = -1;
            printf("%ld", (long)ts_smlad_u8_i8(5, a + 1, w + 1));
            return 0;
        }}"""
    )
    source = tmp_path / "sums.c"
    source.write_text("#include <stdint.h>\n#include <string.h>\n" + text)
    wanted = f"{-(2**31) - 4 * 255 * 128 + 2**32} {5 + 7 - 18 + 381 - 250}"
    program = tmp_path / "program"
    run([*find_compiler(), *STRICT, source, "-o", program])
    assert run([program]) == wanted
    if not (shutil.which(ARM) and shutil.which("qemu-system-arm")):
        pytest.skip(f"needs {ARM} with newlib, and qemu-system-arm")
    machine, floats = PROCESSORS["cortex-m4"]
    rest = (BOARD / "start.c", source, "--specs=rdimon.specs", "-nostartfiles")
    run([ARM, *STRICT[:2], "-mcpu=cortex-m4", "-mthumb", *floats, *rest, "-T", BOARD / "board.ld",
         "-o", program])  # fmt: skip
    assert emulated(machine, program) == wanted


@pytest.mark.parametrize("name", NETWORKS)
def test_the_static_analyser_finds_nothing(tmp_path, name) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    unit = written(tmp_path, name).library
    code = re.sub(r"} weights = \{.*?\n\};", "} weights;", unit.read_text(), flags=re.DOTALL)
    unit.write_text(code)  # the values of weights only cost time here
    run([gcc, "-std=c99", "-O1", "-fanalyzer", "-Werror", "-c", unit, "-o", tmp_path / "unit.o"])


def test_what_cant_be_source_is_refused(tmp_path) -> None:
    plain = NETWORKS["anomaly"]().model()
    with pytest.raises(UsageError, match=r"found 'c' and native"):
        ts.compile(plain.SerializeToString()).export(tmp_path, "m", "c")
    with pytest.raises(UsageError, match=r"found 'shared' and cortex-m4"):
        ts.export(plain.SerializeToString(), tmp_path, "m", targets=("cortex-m4",))
    plain.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    plain.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(UsageError, match=r"open dimensions batch; fix them with shapes="):
        ts.export(plain.SerializeToString(), tmp_path, "m", targets=("cortex-m0",), format="c")
