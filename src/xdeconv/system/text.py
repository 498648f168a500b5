"""Text of others, such as labels, units and column names, made safe to print."""

from __future__ import annotations

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
