"""Importing node by node: a node that fails does not stop the walk.

An unsupported node is recorded, and its outputs become `FAILED`.  Nodes that use a failed output
are skipped.  All problems are reported together at the end (`problems.report`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.ir.symbols import symbols_of
from tilesmith.ops.rules import UnequalDims
from tilesmith.support.errors import ModelError, OpenDimensionError, UnsupportedError

from .body import Body
from .equations import replacement
from .errors import LocatedError, NotedError, ValuesNeededError
from .folding import FoldingBuilder
from .problems import Problem, Site, report
from .slots import FAILED, Failed, Slot


class Importer:
    """Imports one model into one builder; a frontend adds the traversal of its format."""

    def __init__(self, builder: FoldingBuilder) -> None:
        self.builder = builder
        self._problems: list[Problem] = []

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems so far."""
        return self._problems

    def attempt(
        self, site: Site, make: Callable[[], Sequence[Slot] | None]
    ) -> Sequence[Slot] | None:
        """The node's outputs, computed by `make`.  An unsupported node is recorded and gives None.

        Raises LocatedError, which names the node, if the model is wrong at this node, and
        UnequalDims if symbols should be replaced.
        """
        try:
            return make()
        except UnequalDims as e:
            if replacement(e.first, e.second) is None:
                self.note(site, e)
                return None
            raise UnequalDims(e.first, e.second, _located(site, str(e))) from None
        except UnsupportedError as e:
            self.note(site, e)
            return None
        except (LocatedError, RecursionError):
            raise
        except ModelError as e:
            raise LocatedError(_located(site, str(e))) from None
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as e:
            # The node has numbers that its import function does not expect.  So the file is at
            # fault, not the compiler.
            reason = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
            raise LocatedError(_located(site, reason)) from e

    def within(self, body: Body, make: Callable[[], list[Slot]]) -> list[Slot] | None:
        """The results of `make`, which adds nodes to `body`.  None if a node is unsupported or
        invalid; then no problem is recorded and `body.misfit` has the reason.
        """
        outer, noted = self.builder, len(self._problems)
        self.builder = body
        results: list[Slot]
        try:
            results = make()
        except ModelError as e:
            results = [FAILED]
            body.misfit = "" if isinstance(e, UnsupportedError) else str(e)
        finally:
            self.builder = outer
        failed = len(self._problems) > noted or any(isinstance(s, Failed) for s in results)
        del self._problems[noted:]
        return None if failed else results

    def note(self, site: Site, error: UnsupportedError) -> None:
        """Record an error for the report at the end."""
        if not isinstance(error, NotedError):
            needs = (error.inputs or None) if isinstance(error, ValuesNeededError) else None
            is_open = isinstance(error, OpenDimensionError)
            dims = error.dims if isinstance(error, OpenDimensionError) else ()
            self._problems.append(Problem(site, str(error), needs, is_open, dims))

    def check(self) -> None:
        """Raises UnsupportedError with all recorded problems, if there are any.  Raises
        OpenShapesError instead if numbers for the open dimensions would help.
        """
        if self._problems:
            concerned = symbols_of(d for p in self._problems for d in p.dims)
            raise report(self._problems, self.builder.open_inputs_with(concerned))


def _located(site: Site, message: str) -> str:
    shown = f"{site.operator}, {site.version}" if site.version else site.operator
    return f"node {site.loc!r} ({shown}): {message}"
