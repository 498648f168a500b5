"""Finding where features, errors, correlations and units come from: by name, by choice, and never by a guess."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rows import units
from .conventions import Convention, recognise
from .expressions import Expression
from .recipe import Deviation, Quantity, Recipe
from .transforms import Formula, Formulated, Hook, Transform

LONGITUDES = {"ra": "dec", "raj2000": "dej2000", "ra_icrs": "de_icrs", "alpha": "delta", "l": "b", "glon": "glat",
              "ecl_lon": "ecl_lat"}  # fmt: skip
LATITUDES = frozenset(LONGITUDES.values())


@dataclass(frozen=True)
class Choices:
    """What a user says about columns; everything else is found by name.

    error         {feature: column, expression, standard deviation, Hook, or None for no noise}
    correlation   {(a, b): column or number}
    unit          {column: unit}, which goes before the file's and the catalogue's own
    derive        transforms, or {feature: expression}
    offset        {column: what is subtracted from it}: a zero point
    inflate       {column: what its error is multiplied by}
    fill          {column: the value that stands for a missing one}
    cos_dec       whether an error of ra (any longitude) is one of ra cos dec
    """

    columns: tuple[str, ...]
    error: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[tuple[str, str], str | float] = field(default_factory=dict)
    unit: Mapping[str, str] = field(default_factory=dict)
    derive: tuple[Transform, ...] = ()
    offset: Mapping[str, Any] = field(default_factory=dict)
    inflate: Mapping[str, Any] = field(default_factory=dict)
    fill: Mapping[str, float] = field(default_factory=dict)
    weight: str | None = None
    error_pattern: str = "{name}_error"
    correlation_pattern: str = "{a}_{b}_corr"
    cos_dec: bool = True


def find_recipe(choices: Choices, columns: Sequence[str], file_units: Mapping[str, str], where: str = "") -> Recipe:
    """The recipe for a table with these columns and units; ``where`` names the table in errors."""
    return _Finder(choices, tuple(columns), dict(file_units), recognise(columns), where).recipe()


def nearest(name: str, columns: Iterable[str], where: str = "") -> ValueError:
    """The error for an unknown column, with the names that come nearest."""
    everything = list(columns)
    folded = {c.lower(): c for c in everything}
    close = [folded[c] for c in difflib.get_close_matches(name.lower(), folded, n=5, cutoff=0.5)]
    hint = f"did you mean {', '.join(close)}?" if close else f"its columns are {', '.join(everything[:20])}"
    return ValueError(f"{where or 'the table'} has no column {name!r}: {hint}")


@dataclass(frozen=True)
class _Finder:
    choices: Choices
    columns: tuple[str, ...]
    file_units: Mapping[str, str]
    convention: Convention | None
    where: str

    def recipe(self) -> Recipe:
        chosen, made = self.choices, self._transforms()
        derived = {name: (t, i) for t in made for i, name in enumerate(t.outputs)}
        raw = [c for c in chosen.columns if c not in derived] + [c for t in made for c in t.inputs]
        self._refuse_unknown(raw, derived)
        quantities: dict[str, Quantity] = {}
        deviations: dict[str, Deviation] = {}
        for name in dict.fromkeys(raw):
            found = self._noise(name)
            deviations |= found[1]
            offset = self._formula(chosen.offset[name]) if name in chosen.offset else None
            quantities[name] = Quantity(name, found[0], offset, chosen.fill.get(name))
        made_units = {name: t.units[i] for name, (t, i) in derived.items()}
        recipe = Recipe(
            features=chosen.columns,
            units=tuple(made_units.get(c) or self._unit(c) or "" for c in chosen.columns),
            quantities=quantities,
            deviations=deviations,
            correlations=self._correlations(list(deviations)),
            transforms=made,
            weight=chosen.weight,
            convention=self.convention.name if self.convention else None,
        )
        self._require(recipe.columns)
        return recipe

    def _transforms(self) -> tuple[Transform, ...]:
        """The transforms that a chosen feature needs."""
        return tuple(t for t in self.choices.derive if set(t.outputs) & set(self.choices.columns))

    def _refuse_unknown(self, raw: Sequence[str], derived: Mapping[str, Any]) -> None:
        if len(set(self.choices.columns)) < len(self.choices.columns):
            raise ValueError(f"a feature is named twice in {list(self.choices.columns)}")
        if not self.choices.columns:
            raise ValueError(f"name the columns to fit; those of {self.where} are {', '.join(self.columns[:40])}")
        for what in ("error", "offset", "inflate", "fill"):
            unused = [name for name in getattr(self.choices, what) if name not in raw]
            if unused:
                raise ValueError(
                    f"{what} is given for {unused}, which is no column that a feature uses: {sorted(set(raw))}"
                )
        self._require(raw)

    def _require(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.columns:
                raise nearest(name, self.columns, self.where)

    def _formula(self, given: Any) -> Any:
        if isinstance(given, (int, float)):
            return float(given)
        return given if isinstance(given, Hook) else Expression(str(given))

    def _unit(self, name: str) -> str | None:
        """The unit of a column: the user's word, the file's, or the catalogue's."""
        known = self.convention.units.get(name) if self.convention else None
        found = self.choices.unit.get(name) or self.file_units.get(name) or known
        return units.tidy(found) if found else None

    # Errors

    def _noise(self, name: str) -> tuple[dict[str, float], dict[str, Deviation]]:
        """Terms {source: coefficient} of a raw column, and the deviations of its sources."""
        given = self.choices.error
        pattern = self.choices.error_pattern.format(name=name)
        if name in given:
            found = None if given[name] is None else self._given(name, given[name])
        elif pattern in self.columns:
            found = self._column(name, pattern)
        else:
            return self._conventional(name)
        return ({name: 1.0}, {name: found}) if found is not None else ({}, {})

    def _conventional(self, name: str) -> tuple[dict[str, float], dict[str, Deviation]]:
        """Noise that the catalogue's convention computes from other columns, if the table has them all."""
        terms = dict(self.convention.terms.get(name, {})) if self.convention else {}
        deviations = {s: Deviation(Expression(self.convention.sd[s])) for s in terms} if self.convention else {}
        there = all(column in self.columns for d in deviations.values() for column in d.names)
        if not terms or not there:
            return {}, {}
        factor = self.choices.inflate.get(name)
        if factor is not None:
            scaled = {f"{name}:{s}": Deviation(d.source, inflate=self._inflation(name)) for s, d in deviations.items()}
            return {f"{name}:{s}": k for s, k in terms.items()}, scaled
        return terms, deviations

    def _given(self, name: str, given: Any) -> Deviation:
        if isinstance(given, str) and given in self.columns:
            return self._column(name, given)
        source = self._formula(given)
        if isinstance(source, float) and not 0 <= source < float("inf"):
            raise ValueError(f"the error of {name} is {source}: a standard deviation is not negative")
        return Deviation(source, inflate=self._inflation(name))

    def _column(self, name: str, column: str) -> Deviation:
        """An error column, turned into the unit of the value."""
        factor, note = self._conversion(name, column)
        low = name.lower()
        latitude = None
        if low in LONGITUDES and self.choices.cos_dec:
            latitude = next((c for c in self.columns if c.lower() == LONGITUDES[low]), None)
            if latitude is None:
                raise ValueError(
                    f"{column} is an error of {name} cos {LONGITUDES[low]}, and {self.where} lacks {LONGITUDES[low]}"
                )
            note = f"{note}, of {name} cos {latitude}: divided by the cosine"
        return Deviation(Expression(column), factor, latitude, self._inflation(name), note.strip(", "))

    def _conversion(self, name: str, column: str) -> tuple[float, str]:
        value, error = self._unit(name), self._unit(column)
        if error is None and (name.lower() in LONGITUDES or name.lower() in LATITUDES):
            raise ValueError(
                f"the unit of {column} is not known: say it with unit={{{column!r}: 'mas'}} or --unit {column}=mas"
            )
        if value is None or error is None:
            return 1.0, "taken to be in the unit of the value" if value or error else ""
        factor = units.factor(error, value, column)
        return factor, "" if factor == 1.0 else f"{units.tidy(error)} -> {units.tidy(value)}"

    def _inflation(self, name: str) -> Formula | None:
        given = self.choices.inflate.get(name)
        return None if given is None else given if isinstance(given, Hook) else Expression(str(given))

    # Correlations

    def _correlations(self, sources: Sequence[str]) -> dict[tuple[str, str], str | float]:
        """Correlations of pairs of sources: given, or columns that the pattern names in either order."""
        found: dict[tuple[str, str], str | float] = {}
        for i, a in enumerate(sources):
            for b in sources[:i]:
                column = self._pair(b, a)
                if column is not None:
                    found[b, a] = column
        unused = [pair for pair in self.choices.correlation if pair not in found and pair[::-1] not in found]
        if unused:
            raise ValueError(f"a correlation is given for {unused}, which are not two features with errors")
        return found

    def _pair(self, a: str, b: str) -> str | float | None:
        for pair in ((a, b), (b, a)):
            if pair in self.choices.correlation:
                return self.choices.correlation[pair]
        names = [self.choices.correlation_pattern.format(a=x, b=y) for x, y in ((a, b), (b, a))]
        return next((name for name in names if name in self.columns), None)


def as_transforms(derive: Any) -> tuple[Transform, ...]:
    """Transforms from {feature: expression}, a transform, or a list of either."""
    if derive is None:
        return ()
    if isinstance(derive, Mapping):
        return tuple(
            Formulated(name, Expression(text)) if isinstance(text, str) else text for name, text in derive.items()
        )
    if isinstance(derive, (list, tuple)):
        return tuple(t for part in derive for t in as_transforms(part))
    if isinstance(derive, str):
        from .sky import parse_transform

        return as_transforms(parse_transform(derive))
    return (derive,)


def describe(recipe: Recipe) -> list[str]:
    """One line a feature: its unit, its noise and what it correlates with."""
    made = {name: t for t in recipe.transforms for name in t.outputs}
    width = max(len(name) for name in recipe.features)
    lines = []
    for name, unit in zip(recipe.features, recipe.units, strict=True):
        raw = made[name].inputs if name in made else (name,)
        lines.append(f"  {name:<{width}}  {unit or '-':<7}  {_noise_text(recipe, name, raw, name in made)}")
    return lines


def _noise_text(recipe: Recipe, name: str, raw: Sequence[str], derived: bool) -> str:
    sources = list(dict.fromkeys(s for column in raw for s in recipe.quantities[column].terms))
    start = f"from {', '.join(raw)}; " if derived else ""
    filled = [f"missing -> {q.fill:g}; " for q in (recipe.quantities[c] for c in raw) if q.fill is not None]
    moved = [f"minus {q.offset if isinstance(q.offset, float) else q.offset.text}; "
             for q in (recipe.quantities[c] for c in raw) if q.offset is not None]  # fmt: skip
    start += "".join(moved + filled)
    if not sources:
        return start + "NO NOISE: no error column was found, values are taken as exact"
    others = [o for pair in recipe.correlations for s, o in (pair, pair[::-1]) if s in sources and o not in sources]
    text = start + "sd " + " and ".join(recipe.deviations[s].text for s in sources)
    return text + (f"; correlated with {', '.join(dict.fromkeys(others))}" if others else "")
