"""Sums of decimal fractions as INCRBYFLOAT computes and writes them: in 64-bit precision (x86's long double)."""

from __future__ import annotations

import re
from fractions import Fraction

from keystead.errors import NotANumber

_DECIMAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?")
_PRECISION_BITS = 64
_LARGEST_EXPONENT = 16_384
_DIGITS = 17  # after the point
_LONGEST = 5 * 1024  # characters


def add_floats(held: bytes | None, amount: bytes) -> bytes:
    """A stored number plus an amount, as text. Raises NotANumber."""
    total = _round(_parse(b"0" if held is None else held) + _parse(amount))
    if abs(total) >= 2**_LARGEST_EXPONENT:
        raise NotANumber("the result is not a finite number")
    scaled = round(total * 10**_DIGITS)
    whole, rest = divmod(abs(scaled), 10**_DIGITS)
    fraction = f".{rest:0{_DIGITS}d}".rstrip("0").rstrip(".")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole}{fraction}".encode()


def _parse(text: bytes) -> Fraction:
    if not _DECIMAL.fullmatch(text) or len(text) >= _LONGEST:
        raise NotANumber(f"{text[:40].decode('utf-8', 'replace')!r} is not a decimal number")
    return _round(Fraction(text.decode()))


def _round(number: Fraction) -> Fraction:
    """To the nearest number of 64 significant bits; a tie to the even one."""
    if not number:
        return number
    exponent = abs(number.numerator).bit_length() - number.denominator.bit_length() - _PRECISION_BITS
    unit = Fraction(2) ** exponent
    while abs(number) / unit >= 2**_PRECISION_BITS:
        unit *= 2
    return round(number / unit) * unit
