"""Names that came with a model, as Matplotlib can draw them: formulas where they are some, and else text."""

from __future__ import annotations

from ..system.text import printable

TEX = str.maketrans({"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", **{c: f"\\{c}" for c in "{}$&#%_"}})


def drawable(text: str) -> str:
    r"""Text of others for a picture. Where LaTeX draws, it may say no more than what Matplotlib itself knows.

    >>> drawable("$y_1$"), drawable("cost in $"), drawable(r"$\undefined$")
    ('$y_1$', 'cost in \\$', '\\$\\undefined\\$')
    """
    from matplotlib import rcParams

    shown = printable(text)
    formula = _is_formula(shown)
    if not rcParams["text.usetex"]:
        return shown if formula else shown.replace("$", r"\$")
    parts = shown.split("$") if formula else [shown]
    return "$".join(part if i % 2 else part.translate(TEX) for i, part in enumerate(parts))


def _is_formula(text: str) -> bool:
    """Whether all between dollars is what Matplotlib can set; text without dollars is, too."""
    from matplotlib.mathtext import MathTextParser

    if text.count("$") % 2 or r"\$" in text:
        return False
    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return False
    return True
