"""Templates and tasks: a template with arguments and a target."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.support.errors import UsageError
from tilesmith.te.knobs import ANALYTIC, Config, Decisions, Knob

from ...names import refusing
from ..target import Target
from . import record
from .config import ConfigEntity, ConfigSpace, deciding, get_config, inside_template

__all__ = ["Task", "create", "get_config", "template"]

_TEMPLATES: dict[str, Callable[..., Any]] = {}


def template(task_name: Any = None, func: Callable[..., Any] | None = None) -> Any:
    """Make a template of a function from arguments to a schedule and its parameters.

    Outside of tuning a call takes the best decisions of `apply_history_best`, or the defaults.
    """
    if callable(task_name):  # @autotvm.template without a name
        return template(task_name.__name__, task_name)
    if func is None:
        return lambda found: template(task_name or found.__name__, found)
    inner = func

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if inside_template():
            return inner(*args, **kwargs)
        best = record.best_of(task_name, args)
        with deciding(ANALYTIC if best is None else Config(best)):
            return inner(*args, **kwargs)

    call.task_name = task_name  # type: ignore[attr-defined]
    _TEMPLATES[task_name] = inner
    return call


class Task:
    """A template with arguments.

    name: name of the template.
    args: its arguments.
    target: target of its code.
    """

    def __init__(self, name: str, args: Sequence[Any], target: Target | None = None) -> None:
        if name not in _TEMPLATES:
            known = ", ".join(_TEMPLATES) or "none"
            raise UsageError(f"no template {name!r} is registered; those registered are {known}")
        self.name, self.args, self.target = name, tuple(args), target
        self.func = _TEMPLATES[name]

    def instantiate(self, config: Config) -> Any:
        """The schedule and its parameters with these decisions."""
        with deciding(config):
            return self.func(*self.args)

    @functools.cached_property
    def config_space(self) -> ConfigSpace:
        """The decisions that the template declares when it runs with the default choices."""
        seen: dict[str, Knob] = {}
        self.instantiate(Config(seen=seen))
        return ConfigSpace(seen)

    def entity(self, decisions: Decisions) -> ConfigEntity:
        """The template's decisions with these values."""
        with deciding(Config(decisions)) as entity:
            self.func(*self.args)
        return entity

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args})"


def create(
    task_name: Any, args: Sequence[Any], target: Any = None, target_host: Any = None
) -> Task:
    """The task of a template by its name, or of the template itself."""
    name = getattr(task_name, "task_name", task_name)
    return Task(name, args, Target.current() if target is None else Target(target))


ELSEWHERE: dict[str, str] = dict.fromkeys(
    ("extract_from_program", "extract_from_multiple_program"),
    "tilesmith.tune(model), which divides its time among the kernels",
)
"""What to use for names of TVM."""

__getattr__ = refusing("autotvm.task", ELSEWHERE)
