"""Reasons for refusing operators that the table lacks."""

from __future__ import annotations

from importlib.util import find_spec

RANDOM = frozenset((
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli",
    "multinomial", "normal", "normal_functional", "uniform", "exponential", "cauchy", "geometric",
    "log_normal", "poisson", "binomial", "rrelu_with_noise", "rrelu_with_noise_functional",
))  # fmt: skip
"""Names of operators that draw random numbers."""


WAY_OUT = "torch.compile(model, backend='tilesmith') leaves it to PyTorch"
"""The advice for operators that have no specific advice."""


def reason_of(target: str, may_fall_back: bool = True) -> str:
    """The reason why an operator is refused, with advice.

    target: the operator's overload, such as "aten.rand.default".
    may_fall_back: whether PyTorch will run the refused operator, so that no action is needed.
    """
    advice = "" if may_fall_back else f"; {WAY_OUT}"
    namespace, name, overload = (*target.split("."), "", "")[:3]
    if namespace == "aten" and name in RANDOM:
        return (
            "it draws random numbers, which a compiled program does not; draw them outside and "
            "hand them in as an input, or call .eval() on the module"
        )
    if namespace == "aten" and name.startswith("_fft_"):
        return f"it works on complex numbers, which are not supported{advice}"
    if namespace == "aten" and (overload == "out" or name == "_native_batch_norm_legit"):
        return "it writes into its arguments, which torch.export takes out of a program"
    if namespace == "aten" and not _has_pytorch():
        return (
            "this operator is not supported without PyTorch, which takes many of them apart: "
            "install tilesmith[torch], or save the program after run_decompositions()"
        )
    return f"this operator is not supported{advice}"


def _has_pytorch() -> bool:
    try:
        return find_spec("torch") is not None
    except ValueError:  # an import hook blocks the module
        return False
