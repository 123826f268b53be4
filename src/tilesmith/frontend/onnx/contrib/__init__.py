"""Operators of domain com.microsoft that exporters, optimisers and quantisers write.

They are made of the operators that there are; many are an ONNX operator with other inputs, which
`OnnxNode.as_operator` gives.  Their meaning is ONNX Runtime's (docs/ContribOperators.md there).
"""

from functools import partial

from tilesmith.frontend.onnx.registry import onnx_op

DOMAIN = "com.microsoft"

contrib_op = partial(onnx_op, since=1, domain=DOMAIN)
"""`onnx_op` for this domain."""
