"""The words of the command line as values: pairs, numbers, and what a fit has beside Gaussians."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ..fitting.words import Way, Worded
    from ..methods import EM, Fixed


def pairs(items: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """NAME=VALUE words as a dict."""
    named: dict[str, str] = {}
    for item in items or ():
        name, sign, text = item.partition("=")
        if not sign or name.strip() in named:
            wrong = f"{name.strip()!r} is given twice" if sign else f"{item!r} is not NAME=VALUE"
            raise typer.BadParameter(wrong, param_hint=option)
        named[name.strip()] = text
    return named or None


def one_each(items: Sequence[str] | None, option: str) -> dict[str, str] | None:
    """NAME=EXPRESSION words as a dict; several in one word are refused, since expressions have commas of their own."""
    for item in items or ():
        name, _, text = item.partition("=")
        if second := re.search(r",\s*(\w+)=(?!=)", text):
            said = f"{item!r} is two of them: say {option} once for {name.strip()} and once for {second[1]}"
            raise typer.BadParameter(said, param_hint=option)
    return pairs(items, option)


def numbers(items: Sequence[str] | None, option: str) -> dict[str, float]:
    """NAME=NUMBER words as a dict."""
    numbers = {}
    for name, text in (pairs(items, option) or {}).items():
        try:
            numbers[name.strip()] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number for {name}", param_hint=option) from None
    return numbers


def value(text: str) -> Any:
    """A number where the text is one, None for none, else the text."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def listed(words: str | None) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in (words or "").split(",") if word.strip()]


def model_of(background: str | None) -> str | None:
    """The file that --background names, where it names one."""
    return background if background and os.path.isfile(background) else None


def background(text: str | None, labels: Sequence[str]) -> Any:
    """The background that --background names: a box of the columns, or a model."""
    from ..mixture._mixture import load
    from ..mixture.background import Uniform

    if text is None or model_of(text):
        return None if text is None else load(text)
    if "=" not in text:
        box = ",".join(f"{name}=LOW:HIGH" for name in labels)
        wrong = f"there is no file {text}: give a model's file, or a box such as {box}"
        raise typer.BadParameter(wrong, param_hint="--background")
    sides = pairs(text.split(","), "--background") or {}
    unknown, missing = [n for n in sides if n not in labels], [n for n in labels if n not in sides]
    if unknown or missing:
        wrong = f"{unknown[0]!r} is not a column of the fit" if unknown else f"{missing[0]!r} has no LOW:HIGH"
        raise typer.BadParameter(wrong, param_hint="--background")
    try:
        ends = [_ends(name, sides[name]) for name in labels]
        return Uniform(*zip(*ends, strict=True))
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--background") from None


def _ends(name: str, text: str) -> tuple[float, float]:
    """LOW:HIGH of a column."""
    try:
        low, high = (float(end) for end in text.split(":"))
    except ValueError:
        raise ValueError(f"{name}={text} is not COLUMN=LOW:HIGH with two numbers") from None
    if not low < high:
        raise ValueError(f"{name}={text} must have LOW < HIGH")
    return low, high


def inflation(text: str | None) -> Any:
    """The factors on errors that --inflation names.

    >>> inflation("of=parallax,pmra by=phot_g_mean_mag:13,15")
    Inflation(by='phot_g_mean_mag', bins=(13.0, 15.0), of=('parallax', 'pmra'), jitter=())
    """
    from ..mixture.inflation import Inflation

    if text is None or text == "all":
        return None if text is None else Inflation()
    said = pairs(text.split(), "--inflation") or {}
    unknown = [name for name in said if name not in ("of", "by", "jitter")]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of of, by, jitter", param_hint="--inflation")
    by, _, edges = said.get("by", "").partition(":")
    lists = {name: tuple(said[name].split(",")) for name in ("of", "jitter") if name in said}
    try:
        bins = [float(edge) for edge in edges.split(",")] if edges else None
        jitter = [int(g) for g in lists.get("jitter", ())] if bins else lists.get("jitter", ())
        return Inflation(by or None, bins, lists.get("of"), jitter)
    except ValueError as problem:
        raise typer.BadParameter(f"{text!r}: {problem}", param_hint="--inflation") from None


def selection(texts: Sequence[str] | None) -> Any:
    """The cuts that --selection names."""
    from ..mixture.selections.given import parsed

    try:
        return None if not texts else [cut for text in texts for cut in parsed(text)]
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--selection") from None


def tails(text: str | None) -> Any:
    """The tails that --tails names: fit, or a number of degrees of freedom."""
    from ..mixture.tails import LEAST, MOST, StudentT

    try:
        return None if text is None else StudentT() if text == "fit" else StudentT(float(text))
    except ValueError:
        why = f"{text!r} is neither fit nor a number of degrees of freedom from {LEAST:g} to {MOST:g}"
        raise typer.BadParameter(why, param_hint="--tails") from None


def em(w: float, fixed: Fixed | None = None) -> EM:
    """Batch EM with a prior of this width, or without one."""
    from ..methods import EM, Prior

    return EM(prior=Prior(w=w) if w > 0 else None, fixed=fixed)


def worded(way: Way, w: float = 0.0) -> Worded:
    """The method that a word and the width of a prior stand for."""
    from ..fitting.words import Worded
    from ..methods.prior import Prior

    return Worded(way, Prior(w=w) if w > 0 else None)
