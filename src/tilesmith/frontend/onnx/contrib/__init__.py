"""Operators of domain com.microsoft that exporters, optimisers and quantisers write.

They are composed of other operators.  Many equal an ONNX operator with other
inputs; `OnnxNode.as_operator` makes that operator.  ONNX Runtime defines the operators
(docs/ContribOperators.md there).
"""

from functools import partial

from tilesmith.frontend.onnx.registry import onnx_op

DOMAIN = "com.microsoft"

contrib_op = partial(onnx_op, since=1, domain=DOMAIN)
"""`onnx_op` for this domain."""
