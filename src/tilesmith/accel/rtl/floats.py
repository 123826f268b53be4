"""Arithmetic of f32 and f64 as combinational logic: IEEE 754, ties to even, subnormal numbers too.

Numbers are unsigned values of 32 or 64 bits.  A result that is no number is a positive quiet NaN.
A value that is used more than once gets a wire, because logic has no other way to share.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportReturnType=false
# (Amaranth's annotations don't describe its operators and contexts.)
from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.hdl import Const as Bits


class _Parts:
    """Sign, exponent and magnitude of a number, `mantissa * 2 ** (exponent - unit)`."""

    def __init__(self, floats: Floats, a: Value) -> None:
        fraction, field = a[: floats.fraction], a[floats.fraction : -1]
        self.sign = a[-1]
        self.mantissa = floats.wire(Cat(fraction, field != 0))
        self.exponent = floats.wire(Mux(field == 0, 1, field))
        self.is_nan = floats.wire(field.all() & (fraction != 0))
        self.is_infinite = floats.wire(field.all() & (fraction == 0))
        self.is_zero = floats.wire(a[:-1] == 0)


class Floats:
    """Adds the logic of its methods to a module.

    fraction, exponent: bits of these fields of a number; those of f32 by default.
    """

    def __init__(self, m: Module, fraction: int = 23, exponent: int = 8) -> None:
        self.m, self.fraction, self.exponent = m, fraction, exponent
        self.width = 1 + exponent + fraction
        self.unit = (1 << exponent - 1) - 1 + fraction
        """A number with the exponent `unit` is an integer, its mantissa."""
        self.infinity = ((1 << exponent) - 1) << fraction
        self.nan = self.infinity | 1 << fraction - 1
        self.guard = fraction + 4
        """Bits below a sum's last one: more than those by which cancellation can move it."""

    def wire(self, value: Value) -> Signal:
        """A signal that always has a value."""
        signal = Signal(Value.cast(value).shape())
        self.m.d.comb += signal.eq(value)
        return signal

    def of_i32(self, a: Value) -> Value:
        """An integer as f32."""
        whole = a.as_signed()
        magnitude = self.wire(Mux(whole < 0, -whole, whole)[:32])
        return self._packed(a[31], magnitude, Bits(0, signed(2)))

    def multiply(self, a: Value, b: Value) -> Value:
        """a * b."""
        x, y = _Parts(self, a), _Parts(self, b)
        sign = self.wire(x.sign ^ y.sign)
        exponent = self.wire(x.exponent + y.exponent - 2 * self.unit)
        product = self._packed(sign, self.wire(x.mantissa * y.mantissa), exponent)
        is_nan = x.is_nan | y.is_nan | x.is_infinite & y.is_zero | x.is_zero & y.is_infinite
        infinite = x.is_infinite | y.is_infinite
        return self._chosen(is_nan, infinite, sign, product)

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        is_swapped = self.wire(a[:-1] < b[:-1])
        x = _Parts(self, self.wire(Mux(is_swapped, b, a)))
        y = _Parts(self, self.wire(Mux(is_swapped, a, b)))
        guard = self.guard
        distance = (x.exponent - y.exponent).as_unsigned()
        distance = self._limited(distance, self.fraction + 1 + guard)
        large, small = x.mantissa << guard, self.wire(y.mantissa << guard)
        moved = self.wire(small >> distance)
        small = moved | ((moved << distance) != small)
        total = Mux(x.sign == y.sign, large + small, large - small)[: self.fraction + 2 + guard]
        total = self.wire(total)
        sign = self.wire(Mux(total == 0, x.sign & y.sign, x.sign))
        result = self._packed(sign, total, self.wire(x.exponent - (self.unit + guard)))
        is_nan = x.is_nan | y.is_nan | x.is_infinite & y.is_infinite & (x.sign ^ y.sign)
        return self._chosen(is_nan, x.is_infinite | y.is_infinite, x.sign, result)

    def rounded(self, a: Value) -> Value:
        """The nearest integer as a number, ties to even."""
        x = _Parts(self, a)
        shift = self._limited(self._below(x), self.fraction + 2)
        whole = self._packed(x.sign, self._shifted(x.mantissa, shift), Bits(0, signed(2)))
        return self.wire(Mux(x.exponent >= self.unit, a, whole)[: self.width])

    def to_i32(self, a: Value) -> Value:
        """An f32 as an integer, rounded toward zero; the least one where it doesn't fit."""
        x = _Parts(self, a)
        right = self._limited(self._below(x), self.fraction + 1)
        left = Mux(x.exponent > self.unit, x.exponent - self.unit, 0)[:3]
        magnitude = self.wire((x.mantissa >> right) << left)
        whole = Mux(x.sign, -magnitude, magnitude)[:32]
        return self.wire(Mux(x.exponent < self.unit - self.fraction + 31, whole, 1 << 31)[:32])

    def converted(self, a: Value, to: Floats) -> Value:
        """The number in another format."""
        x = _Parts(self, a)
        result = to._packed(x.sign, x.mantissa, self.wire(x.exponent - self.unit))
        return to._chosen(x.is_nan, x.is_infinite, x.sign, result)

    def _below(self, x: _Parts) -> Value:
        """How many bits of a mantissa are below one."""
        return Mux(x.exponent < self.unit, self.unit - x.exponent, 0).as_unsigned()

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger one; a if it is no number, or if they are equal."""
        return self.wire(Mux(self._at_least(a, b) | _Parts(self, a).is_nan, a, b))

    def minimum(self, a: Value, b: Value) -> Value:
        """The smaller one; a if it is no number, or if they are equal."""
        return self.wire(Mux(self._at_least(b, a) | _Parts(self, a).is_nan, a, b))

    def _at_least(self, a: Value, b: Value) -> Value:
        """Whether a >= b; false if one is no number."""
        x, y = _Parts(self, a), _Parts(self, b)
        order = [Cat(v[:-1] ^ v[-1].replicate(self.width - 1), ~v[-1]) for v in (a, b)]
        return ~x.is_nan & ~y.is_nan & ((order[0] >= order[1]) | x.is_zero & y.is_zero)

    def _chosen(self, is_nan: Value, infinite: Value, sign: Value, result: Value) -> Value:
        special = Cat(Bits(self.infinity, self.width - 1), sign)
        return self.wire(Mux(is_nan, self.nan, Mux(infinite, special, result))[: self.width])

    def _packed(self, sign: Value, magnitude: Value, exponent: Value) -> Value:
        """`magnitude * 2 ** exponent` as a number."""
        least = 1 - self.unit  # exponent of the last bit of a subnormal number
        for_normal = self.wire(self._leading(magnitude) - self.fraction)
        for_subnormal = self.wire(least - exponent)
        shift = self.wire(Mux(for_normal > for_subnormal, for_normal, for_subnormal))
        right = self._limited(Mux(shift > 0, shift, 0).as_unsigned(), len(magnitude) + 1)
        left = Mux(shift < 0, -shift, 0)[: self.fraction.bit_length()]
        kept = self._shifted(magnitude, right) << left
        place = self.wire((shift + exponent - least).as_unsigned()[: self.exponent + 1])
        bits = self.wire(((place << self.fraction) + kept)[: self.width + 1])
        bits = Mux(magnitude == 0, 0, Mux(bits >= self.infinity, self.infinity, bits))
        return self.wire(Cat(bits[: self.width - 1], sign))

    def _leading(self, a: Value) -> Value:
        """Position of the most significant one; 0 if there is none."""
        place = Signal(range(len(a)))
        for bit in range(len(a)):
            with self.m.If(a[bit]):
                self.m.d.comb += place.eq(bit)
        return place

    def _shifted(self, a: Value, shift: Value) -> Value:
        """`a >> shift` to the nearest integer, ties to even."""
        wide = self.wire(Cat(Bits(0, 1), a))  # so that there is a bit below the last one
        moved = self.wire(wide >> shift)
        lost = (moved << shift) != wide
        return self.wire(moved[1:] + (moved[0] & (lost | moved[1])))

    def _limited(self, shift: Value, most: int) -> Value:
        """A shift of as many bits as matter."""
        whole = self.wire(shift)
        return self.wire(Mux(whole > most, most, whole)[: most.bit_length()])
