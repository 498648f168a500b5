"""Columns that look like the error of another: offered in a message where no error was found, and never taken."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from shlex import quote

_WORD = re.compile(r"errors?|err[12]?|sigmas?|sig|uncert(?:ainty)?|unc|stderr|ivar|(?<![^_])e_")


def likely_error(name: str, columns: Iterable[str]) -> str | None:
    """A formula of the first column whose name is that of another and a word for an error, wherever that stands in it.

    >>> likely_error("teff_madera", ["teff", "teff_error_madera"]), likely_error("psfFlux_g", ["psfFluxIvar_g"])
    ('teff_error_madera', '1 / sqrt(psfFluxIvar_g)')
    >>> likely_error("x", ["y_err", "x2"])
    """
    wanted, others = _plain(name), (column for column in columns if column != name)
    words = ((column, _without_words(column).get(wanted)) for column in others)
    return next((_formula(column, word) for column, word in words if word is not None), None)


def offered(names: Iterable[str], columns: Collection[str]) -> tuple[dict[str, str], str]:
    """Formulas for the errors of columns, where any look like them, and the options of the command that say so."""
    formulas = {name: formula for name in names if (formula := likely_error(name, columns))}
    return formulas, " ".join(f"--error {quote(f'{name}={formula}')}" for name, formula in formulas.items())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _without_words(column: str) -> dict[str, str]:
    """What is left of a name without one of its words for an error, and that word."""
    low = column.lower()
    return {_plain(low[: word.start()] + low[word.end() :]): word[0] for word in _WORD.finditer(low)}


def _formula(column: str, word: str) -> str:
    """The standard deviation that a column gives."""
    if word != "ivar":
        return column
    return f"1 / sqrt({column if column.isidentifier() else f'`{column}`'})"
