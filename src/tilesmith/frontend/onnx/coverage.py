"""The supported operators of ONNX, with their versions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tilesmith.frontend.onnx.operators import OPERATORS
from tilesmith.frontend.onnx.registry import standard_function


@dataclass(frozen=True, slots=True)
class Coverage:
    """The support of one operator.

    domain: the operator's domain; empty for ai.onnx.
    name: the operator's name.
    opsets: versions at which it is imported, such as "1-6, 7+"; "body" if ONNX's function body is
        imported; empty if it is not imported.
    missing: versions with a new definition that is not imported.
    newest: whether its newest definition is imported.
    defined: whether the onnx package defines it.
    """

    domain: str
    name: str
    opsets: str
    missing: tuple[int, ...]
    newest: bool
    defined: bool


def coverage() -> list[Coverage]:
    """All operators of the installed onnx package, and those of other domains that are imported."""
    import onnx  # imported here, because the import takes 0.1 s

    defined: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.deprecated:
            defined[schema.domain, schema.name].append(schema.since_version)
    rows = []
    for domain, name in sorted({*OPERATORS, *defined}):
        versions = sorted(defined.get((domain, name), [1]))
        missing = tuple(v for v in versions if not _is_imported(domain, name, v))
        opsets = OPERATORS.versions(domain, name) or ("" if missing == (*versions,) else "body")
        newest = versions[-1] not in missing
        rows.append(Coverage(domain, name, opsets, missing, newest, (domain, name) in defined))
    return rows


def _is_imported(domain: str, name: str, version: int) -> bool:
    known = OPERATORS.find(domain, name, version)
    return known is not None or standard_function(domain, name, version) is not None
