"""The steps applied to a schedule, and the state that results from them."""

from __future__ import annotations

from tilesmith.support.arguments import checked_methods
from tilesmith.support.errors import ScheduleError

from .check import check
from .state import State
from .steps import Step


@checked_methods(ScheduleError)
class History:
    """The steps applied to a state, in order.

    state: the resulting structure, an immutable value.
    steps: all steps since the unscheduled state.
    """

    def __init__(self, state: State, steps: tuple[Step, ...] = ()) -> None:
        self._state = state
        self._steps = steps

    @property
    def state(self) -> State:
        return self._state

    @property
    def steps(self) -> tuple[Step, ...]:
        return self._steps

    def apply(self, step: Step) -> None:
        """Append one step.  Raises ScheduleError, and changes nothing, if it is illegal."""
        state = step.apply(self._state)
        check(state)
        self._state = state
        self._steps = (*self._steps, step)

    def checkpoint(self) -> tuple[State, tuple[Step, ...]]:
        """The value that `restore` needs to return to this point."""
        return self._state, self._steps

    def restore(self, point: tuple[State, tuple[Step, ...]]) -> None:
        self._state, self._steps = point
