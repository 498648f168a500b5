"""Describing: what was made of a table's columns, in words for a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..system.functions import named
from ..system.text import printable
from .likely import offered
from .readers import Table
from .recipe import Recipe
from .transforms import Hook


def unexplained(recipe: Recipe, table: Table) -> str | None:
    """What to say of features without noise that nobody declared to have none, or None."""
    names = recipe.unexplained
    if not names:
        return None
    likely, options = offered(names, table.columns)
    such = f", perhaps error={likely} or {options}" if likely else ""
    return (
        f"no error column was found for {', '.join(names)} in {table.name}: the values are taken as exact. If that is "
        f"meant, say error={{{names[0]!r}: None}} or --error {names[0]}=none; else name the column{such}"
    )


def unsaid_units(table: Table, recipe: Recipe, said: Mapping[str, str]) -> str | None:
    """What to say of files that do not tell the units that other files do, or None."""
    unsaid = table.unsaid_units([name for name in recipe.columns if name not in said])
    if not unsaid:
        return None
    file, names = next(iter(unsaid.items()))
    more = f" and {len(unsaid) - 1} more files do" if len(unsaid) > 1 else " does"
    wanted = {names[0]: table.units[names[0]]}
    return (f"{file}{more} not say the units of {', '.join(names)}, as other files do: they are taken to be the same. "
            f"If they are, say unit={wanted} or --unit {names[0]}={wanted[names[0]]}")  # fmt: skip


def describe(recipe: Recipe) -> list[str]:
    """One line per feature: its unit, its noise and what it correlates with."""
    made = {name for t in recipe.transforms for name in t.outputs}
    width = max(len(name) for name in recipe.features)
    lines = []
    for name, unit in zip(recipe.features, recipe.units, strict=True):
        text = _noise_text(recipe, name, recipe.inputs(name), name in made)
        lines.append(printable(f"  {name:<{width}}  {unit or '-':<7}  {text}"))
    return lines


def functions(recipe: Recipe) -> list[str]:
    """What the functions and transforms of a recipe are made of: two of one name may give other values."""
    formulas = [quantity.offset for quantity in recipe.quantities.values()]
    formulas += [formula for each in recipe.deviations.values() for formula in (each.source, each.inflate)]
    given = [formula.function for formula in formulas if isinstance(formula, Hook)]
    return [named(made) for made in (*given, *recipe.transforms)]


def _noise_text(recipe: Recipe, name: str, raw: Sequence[str], derived: bool) -> str:
    sources = list(dict.fromkeys(s for column in raw for s in recipe.quantities[column].terms))
    start = f"from {', '.join(raw)}; " if derived else ""
    filled = [f"missing -> {q.fill:g}; " for q in (recipe.quantities[c] for c in raw) if q.fill is not None]
    moved = [f"minus {q.offset if isinstance(q.offset, float) else q.offset.text}; "
             for q in (recipe.quantities[c] for c in raw) if q.offset is not None]  # fmt: skip
    absent = [f"{q.missing:g} -> missing; " for q in (recipe.quantities[c] for c in raw) if q.missing is not None]
    start += "".join(absent + moved + filled)
    bare = [column for column in raw if derived and column in recipe.unexplained]
    if not sources:
        if not bare and name not in recipe.unexplained:
            return start + "no noise: values are taken as exact, as was said"
        return start + "NO NOISE: no error column was found, values are taken as exact"
    others = [o for pair in recipe.correlations for s, o in (pair, pair[::-1]) if s in sources and o not in sources]
    text = start + "sd " + " and ".join(recipe.deviations[s].text for s in sources)
    text += f"; correlated with {', '.join(dict.fromkeys(others))}" if others else ""
    return text + (f"; NO NOISE of {', '.join(bare)}: no error column was found" if bare else "")
