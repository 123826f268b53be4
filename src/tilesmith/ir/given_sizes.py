"""Sizes of open dimensions as a caller gives them: the types, for which no frontend is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Range: TypeAlias = int | tuple[int, int]
"""The largest size, or the smallest and the largest."""

Ranges: TypeAlias = Mapping[str, Range | Mapping[int, Range]]
"""Ranges of open dimensions by name (`{"batch": (1, 64)}`), or of an input's axes
(`{"x": {0: (1, 64)}}`).
"""

ExpectedSizes: TypeAlias = Mapping[str, int | Mapping[int, int] | Sequence[int]]
"""Sizes for which decisions are made: by the dimension's name (`{"batch": 8}`), by an input's axes
(`{"x": {0: 8}}`), or the shape of an input (`{"x": (8, 3, 224, 224)}`).
"""
