"""Templates that users register for kernels of models.

    @ts.register_template("matmul")
    def rows(cfg, s, group):
        stage = s[group.outputs[0]]
        cfg.annotate("outer", stage, stage.axis[0], ("none", "parallel"))

A template exists only in the process that registers it.  Records hold its name and its decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tilesmith.graph.nodes import Graph
from tilesmith.strategy.group import Group
from tilesmith.support.arguments import checked, shown
from tilesmith.support.errors import ScheduleError, TilesmithError, UsageError
from tilesmith.support.user_files import run_user_file
from tilesmith.te.knobs import Config
from tilesmith.te.schedule import Schedule

Matcher: TypeAlias = "str | Callable[[Group], bool]"
GroupTemplate: TypeAlias = "Callable[[Config, Schedule, Group], object]"


@dataclass(frozen=True, slots=True)
class Template:
    """A registered template.

    name: its name in decisions and records.
    matches: the operator that its kernels contain, or a predicate that is true for them.
    function: makes the schedule.
    """

    name: str
    matches: Matcher
    function: GroupTemplate

    def is_for(self, body: Graph, group: Group) -> bool:
        """Whether the template applies to a fused body with the tensor expressions `group`."""
        if isinstance(self.matches, str):
            return any(n.op.name == self.matches for n in body.nodes)
        return bool(self._call(self.matches, group))

    def schedule(self, cfg: Config, s: Schedule, group: Group) -> None:
        """Add the template's steps to `s`.

        Raises ScheduleError if the decisions are impossible, UsageError for any other error in the
        template.
        """
        self._call(self.function, cfg, s, group)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ScheduleError:
            raise
        except TilesmithError as e:  # the requested step can't be expressed
            raise ScheduleError(f"template {self.name!r}: {e}") from e
        except Exception as e:
            text = f"template {self.name!r} fails: {type(e).__name__}: {e}"
            raise UsageError(text) from e


_REGISTERED: dict[str, Template] = {}


@checked(UsageError)
def register_template(
    matches: Matcher, template: GroupTemplate | None = None, name: str | None = None
) -> Any:
    """Let `tune` try one's own schedules for kernels of models; also a decorator.

    matches: the name of an operator (as in `tilesmith ops`) that the kernel must contain, or a
        predicate that is called for each kernel: `group.outputs`, `group.inputs` and `group.stages`
        are its tensors and operations.
    template: `template(cfg, s, group)` adds steps to `s`, in which the parameters have their
        layouts already, and asks `cfg` (a `Config`) for its decisions.  It raises ScheduleError if
        the decisions are impossible.
    name: default: the function's name.  A template of the same name is replaced.

    Returns the template.  Raises UsageError.
    """
    if template is None:
        return lambda found: register_template(matches, found, name)
    label = name or getattr(template, "__name__", "")
    if not (callable(matches) or isinstance(matches, str)) or not callable(template) or not label:
        raise UsageError(
            "register_template takes an operator's name or a function of a kernel, and the "
            f"template, a function with a name; not {shown(matches)} and {shown(template)}"
        )
    _REGISTERED[label] = Template(label, matches, template)
    return template


def load_templates(path: Path) -> list[str]:
    """Run a Python file that registers templates; returns their names (see `run_user_file`)."""
    return run_user_file(path, "templates", "register_template", _REGISTERED)


def unregister_template(name: str) -> None:
    """Forget a template.  Raises UsageError if no template has this name."""
    if name not in _REGISTERED:
        names = ", ".join(_REGISTERED) or "none"
        raise UsageError(f"no template {name!r} is registered; those registered are {names}")
    del _REGISTERED[name]


def templates_for(body: Graph, group: Group) -> list[Template]:
    """The templates registered for a fused body, whose tensor expressions are `group`."""
    return [t for t in _REGISTERED.values() if t.is_for(body, group)]


def template_of(name: str) -> Template | None:
    return _REGISTERED.get(name)
