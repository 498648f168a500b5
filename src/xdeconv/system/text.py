"""Text to print: that of others (labels, units, names of columns) made safe, and numbers with their errors."""

from __future__ import annotations

import math
import unicodedata

UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # controls, formats such as right-to-left marks, surrogates, line ends


def printable(text: str, keep: str = "") -> str:
    r"""The text with every character that a terminal could obey written as an escape, but for those to ``keep``.

    >>> printable("parallax \x1b[31m")
    'parallax \\x1b[31m'
    >>> printable("two\nlines", keep="\n")
    'two\nlines'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in UNSAFE else _escape(c) for c in text)


def one_line(text: str) -> str:
    """The text on one line, safe to print: ends of lines become spaces."""
    return printable(" ".join(part.strip() for part in text.splitlines() if part.strip()))


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def counted(number: int, thing: str) -> str:
    """How many there are of a thing.

    >>> counted(1, "move"), counted(2, "move")
    ('1 move', '2 moves')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def measured(value: float, error: float) -> str:
    """A number and its standard error, to the digits that the error deserves: two of its own.

    >>> measured(0.22672345, 0.0325933), measured(-11871.3, 420.0), measured(3.25, 0.0), measured(1.0, float("nan"))
    ('0.227 +- 0.033', '-11870 +- 420', '3.25 +- 0', '1 +- nan')
    """
    if not 0 < error < float("inf"):
        return f"{value:.6g} +- {error:g}"
    digits = 1 - math.floor(math.log10(float(f"{error:.1e}")))
    if -4 <= digits <= 7:
        return f"{round(value, digits):.{max(digits, 0)}f} +- {round(error, digits):.{max(digits, 0)}f}"
    power = math.floor(math.log10(max(abs(value), error)))
    return f"{value:.{max(power + digits, 0)}e} +- {error:.1e}"
