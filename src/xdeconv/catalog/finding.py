"""Finding where features, errors, correlations and units come from: by name, by choice, and never by a guess."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from numbers import Real
from typing import Any

from ..rows import units
from ..rows.grouping import Grouping
from . import conventions
from .coordinates import NAMED, parse_transform
from .expressions import Expression
from .positions import is_longitude, is_position, latitude_name, latitude_of
from .recipe import Deviation, Quantity, Recipe
from .transforms import Converted, Formula, Formulated, Hook, Joined, Plain, Transform

ERROR_PATTERN, CORRELATION_PATTERN = "{name}_error", "{a}_{b}_corr"
PATTERN_LENGTH = 200


@dataclass(frozen=True)
class Choices:
    """What a user says about columns; everything else is found by name.

    error         {feature: column, expression, standard deviation, Hook, or None for no noise}
    correlation   {(a, b): column, number, or None for no correlation}
    unit          {column: unit}, which goes before the file's and the catalogue's own
    derive        transforms, or {feature: expression}
    offset        {column: what is subtracted from it}: a zero point
    inflate       {column: what its error is multiplied by}
    fill          {column: the value that a missing one gets}
    missing       {column: the value that stands for a missing one}
    group         the column that makes groups of rows, and how
    cos_dec       whether an error of ra (any longitude) is one of ra cos dec
    """

    columns: tuple[str, ...]
    error: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[tuple[str, str], str | float | None] = field(default_factory=dict)
    unit: Mapping[str, str] = field(default_factory=dict)
    derive: tuple[Transform, ...] = ()
    offset: Mapping[str, Any] = field(default_factory=dict)
    inflate: Mapping[str, Any] = field(default_factory=dict)
    fill: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    weight: str | None = None
    log_prior: tuple[str, ...] = ()
    group: Mapping[str, Any] | None = None
    error_pattern: str = ERROR_PATTERN
    correlation_pattern: str = CORRELATION_PATTERN
    cos_dec: bool = True

    def __post_init__(self) -> None:
        _check_pattern(self.error_pattern, "error_pattern", ("name",))
        _check_pattern(self.correlation_pattern, "correlation_pattern", ("a", "b"))

    @property
    def raw(self) -> tuple[str, ...]:
        """The raw columns that the features are made of."""
        made = {name: t for t in self.derive for name in t.outputs}
        each = [made[name].inputs if name in made else (name,) for name in self.columns]
        return tuple(dict.fromkeys(column for inputs in each for column in inputs))


def _check_pattern(pattern: Any, what: str, fields: Sequence[str]) -> None:
    """Refuse a pattern that is anything but a name with places for others."""
    wanted = ", ".join(f"{{{name}}}" for name in fields)
    if not isinstance(pattern, str) or len(pattern) > PATTERN_LENGTH:
        raise ValueError(f"{what} must be a text of at most {PATTERN_LENGTH} characters with {wanted} in it")
    marks = re.findall(r"\{[^{}]*\}", pattern)
    if sorted(marks) != sorted(f"{{{name}}}" for name in fields):
        raise ValueError(f"{what} {pattern[:60]!r} must have {wanted} in it, once each, and no other braces")
    if set(re.sub(r"\{\w+\}", "", pattern)) & set("{}"):
        raise ValueError(f"{what} {pattern[:60]!r} must have {wanted} in it, once each, and no other braces")


def _filled(pattern: str, **fields: str) -> str:
    for name, value in fields.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def find_recipe(choices: Choices, columns: Sequence[str], file_units: Mapping[str, str], where: str = "") -> Recipe:
    """The recipe for a table with these columns and units; ``where`` names the table in errors."""
    return _Finder(choices, tuple(columns), dict(file_units), where).recipe()


def nearest(name: str, columns: Iterable[str], where: str = "") -> ValueError:
    """The error for an unknown column, with the names that come nearest."""
    everything = list(columns)
    folded = {c.lower(): c for c in everything}
    close = [folded[c] for c in difflib.get_close_matches(name.lower(), folded, n=5, cutoff=0.5)]
    made = next((kind for kind, outputs in NAMED.items() if name in outputs), None)
    hint = f"did you mean {', '.join(close)}?" if close else f"its columns are {', '.join(everything[:20])}"
    if made:
        hint = f"derive={made!r} or --derive {made} makes {', '.join(NAMED[made])}"
    return ValueError(f"{where or 'the table'} has no column {name!r}: {hint}")


def require(names: Iterable[str], columns: Sequence[str], where: str = "") -> None:
    """Refuse names that a table does not have, or has more than once."""
    for name in names:
        if name not in columns:
            raise nearest(name, columns, where)
        if columns.count(name) > 1:
            raise ValueError(f"{where or 'the table'} has {columns.count(name)} columns called {name!r}: names must be "
                             "unique")  # fmt: skip


@dataclass(frozen=True)
class _Finder:
    choices: Choices
    columns: tuple[str, ...]
    file_units: Mapping[str, str]
    where: str

    def recipe(self) -> Recipe:
        chosen, made = self.choices, self._transforms()
        derived = {name: (t, i) for t in made for i, name in enumerate(t.outputs)}
        raw = [c for c in chosen.columns if c not in derived] + [c for t in made for c in t.inputs]
        self._refuse_unknown(raw, derived)
        noisy = {c for c in chosen.columns if c not in derived} | {
            c for t in made for c in t.inputs if c not in t.exact
        }
        quantities: dict[str, Quantity] = {}
        deviations: dict[str, Deviation] = {}
        for name in dict.fromkeys(raw):
            terms, own = self._noise(name) if name in noisy else ({}, {})
            deviations |= own
            offset = self._formula_of(chosen.offset[name]) if name in chosen.offset else None
            quantities[name] = Quantity(name, terms, offset, chosen.fill.get(name), self._missing(name))
        made_units = {name: t.units[i] for name, (t, i) in derived.items()}
        recipe = Recipe(
            features=chosen.columns,
            units=tuple(made_units.get(c) or self._unit(c) or "" for c in chosen.columns),
            quantities=quantities,
            deviations=deviations,
            correlations=self._correlations(list(deviations)),
            transforms=made,
            weight=chosen.weight,
            log_prior=chosen.log_prior,
            group=None if chosen.group is None else Grouping.from_json(chosen.group),
            catalogues=conventions.catalogues(raw, self.columns),
            declared=frozenset(name for name, given in chosen.error.items() if given is None),
        )
        self._require(recipe.columns)
        self._refuse_idle_patterns(raw)
        return recipe

    def _missing(self, name: str) -> float | None:
        """The value of a column that stands for a missing one."""
        given = self.choices.missing.get(name)
        if given is not None and not (isinstance(given, Real) and math.isfinite(given)):
            raise ValueError(f"missing must be the number that stands for a missing value of {name}, got {given!r}")
        return None if given is None else float(given)

    def _transforms(self) -> tuple[Transform, ...]:
        """The transforms, in the units of the table; each must make a feature."""
        for transform in self.choices.derive:
            if not set(transform.outputs) & set(self.choices.columns):
                made = ", ".join(transform.outputs)
                raise ValueError(f"derive makes {made}, and columns names none of these: {list(self.choices.columns)}. "
                                 "An error or a correlation is given by error= or correlation=")  # fmt: skip
            if transform.projected and not set(transform.outputs) <= set(self.choices.columns):
                raise ValueError(f"{', '.join(transform.outputs)} belong together: name all of them in columns")
        return tuple(self._in_units(transform) for transform in self.choices.derive)

    def _in_units(self, transform: Transform) -> Transform:
        """A transform of columns in the table's units, where these are known and are not what it wants."""
        wanted = ((name, self._unit(name), transform.wants(name)) for name in transform.inputs)
        factors = ((name, units.factor(unit, want, name)) for name, unit, want in wanted if unit and want)
        differ = tuple((name, factor) for name, factor in factors if factor != 1.0)
        return Converted(transform, differ) if differ else transform

    def _refuse_unknown(self, raw: Sequence[str], derived: Mapping[str, Any]) -> None:
        if len(set(self.choices.columns)) < len(self.choices.columns):
            raise ValueError(f"a feature is named twice in {list(self.choices.columns)}")
        if not self.choices.columns:
            raise ValueError(f"name the columns to fit; those of {self.where} are {', '.join(self.columns[:40])}")
        exact = {name for name, given in self.choices.error.items() if given is None}
        for what, given in (("error", self.choices.error), ("offset", self.choices.offset),
                            ("inflate", self.choices.inflate), ("fill", self.choices.fill),
                            ("missing", self.choices.missing)):  # fmt: skip
            unused = [name for name in given if name not in raw and not (name in derived and name in exact)]
            if unused:
                raise ValueError(
                    f"{what} is given for {unused}, which is not a column that a feature uses: {sorted(set(raw))}"
                )
        unknown = [name for name in self.choices.unit if name not in self.columns and name not in derived]
        if unknown:
            raise nearest(unknown[0], self.columns, self.where)
        self._require(raw, tuple(derived))
        self._refuse_missing_priors()

    def _refuse_missing_priors(self) -> None:
        """A model asks for the log-priors of its rows, which other rows need not have."""
        try:
            self._require(self.choices.log_prior)
        except ValueError as problem:
            features = list(self.choices.columns)
            raise ValueError(f"{problem}. Rows without log-priors are asked about as xd.open(rows, {features}), or "
                             "with --log-prior none") from None  # fmt: skip

    def _refuse_idle_patterns(self, raw: Sequence[str]) -> None:
        """A pattern that was asked for and finds nothing is a mistake."""
        pattern = self.choices.error_pattern
        tried = [_filled(pattern, name=name) for name in raw if name not in self.choices.error]
        if pattern != ERROR_PATTERN and tried and not set(tried) & set(self.columns):
            raise ValueError(f"error_pattern {pattern!r} finds no column of {self.where}: tried {', '.join(tried[:5])}")

    def _require(self, names: Iterable[str], derived: tuple[str, ...] = ()) -> None:
        try:
            require(names, self.columns, self.where)
        except ValueError as problem:
            if not derived:
                raise
            raise ValueError(f"{problem}; derive makes {', '.join(derived)}") from None

    def _formula(self, given: Any) -> Any:
        if isinstance(given, (int, float)):
            return float(given)
        return given if isinstance(given, Hook) else Expression(str(given))

    def _formula_of(self, given: Any) -> Any:
        """A column by its name, whatever characters that has, or a formula."""
        return Plain(given) if isinstance(given, str) and given in self.columns else self._formula(given)

    def _unit(self, name: str) -> str | None:
        """The unit of a column: the user's word, the file's, or the catalogue's."""
        known = self.choices.unit.get(name) or self.file_units.get(name)
        unit = known or conventions.known_unit(name, self.columns)
        return units.tidy(unit) if unit else None

    # Errors

    def _noise(self, name: str) -> tuple[dict[str, float], dict[str, Deviation]]:
        """Terms {source: coefficient} of a raw column, and the deviations of its sources."""
        given = self.choices.error
        pattern = _filled(self.choices.error_pattern, name=name)
        if name in given:
            noise = None if given[name] is None else self._given(name, given[name])
        elif pattern in self.columns:
            noise = self._column(name, pattern)
        else:
            conventional = self._conventional(name)
            if conventional[0]:
                return conventional
            noise = self._by_rule(name)
        return ({name: 1.0}, {name: noise}) if noise is not None else ({}, {})

    def _conventional(self, name: str) -> tuple[dict[str, float], dict[str, Deviation]]:
        """Noise that a catalogue's convention computes from other columns, if the table has them all."""
        known = next((c for c in conventions.KNOWN if name in c.terms), None)
        if known is None:
            return {}, {}
        terms = dict(known.terms[name])
        formulas = {source: self._computable(known.sd[source]) for source in terms}
        deviations = {source: Deviation(f) for source, f in formulas.items() if f is not None}
        if len(deviations) < len(terms):
            return {}, {}
        if name in self.choices.inflate:
            scaled = {f"{name}:{s}": Deviation(d.source, inflate=self._inflation(name)) for s, d in deviations.items()}
            return {f"{name}:{s}": k for s, k in terms.items()}, scaled
        return terms, deviations

    def _computable(self, formulas: Sequence[str]) -> Expression | None:
        """The first formula whose columns the table has."""
        each = (Expression(text) for text in formulas)
        return next((formula for formula in each if set(formula.names) <= set(self.columns)), None)

    def _by_rule(self, name: str) -> Deviation | None:
        """An error column that is called as in a known catalogue."""
        known = conventions.error_rule(name, self.columns)
        if known is None:
            return None
        rule, column = known
        if rule.formula == "{}":
            return self._column(name, column)
        position = is_position(name, self.columns)
        return None if position else Deviation(Expression(rule.formula.format(column)), inflate=self._inflation(name))

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
        latitude, degrees = None, 1.0
        if is_longitude(name, self.columns) and self.choices.cos_dec:
            latitude = latitude_of(name, self.columns)
            if latitude is None:
                lacks = latitude_name(name)
                raise ValueError(f"{column} is an error of {name} cos {lacks}, and {self.where} lacks {lacks}")
            note = f"{note}, of {name} cos {latitude}: divided by the cosine"
            degrees = units.factor(self._unit(latitude) or "deg", "deg", latitude)
        return Deviation(Plain(column), factor, latitude, self._inflation(name), note.strip(", "), degrees)

    def _conversion(self, name: str, column: str) -> tuple[float, str]:
        value, error = self._unit(name), self._unit(column)
        if is_position(name, self.columns):
            value = value or "deg"  # as its latitude is read, where nothing says the unit
            if error is None:
                raise ValueError(
                    f"the unit of {column} is not known: say it with unit={{{column!r}: 'mas'}} or --unit {column}=mas"
                )
        if value is None or error is None:
            return 1.0, "taken to be in the unit of the value" if value or error else ""
        factor = units.factor(error, value, column)
        return factor, "" if factor == 1.0 else f"{units.tidy(error)} -> {units.tidy(value)}"

    def _inflation(self, name: str) -> Formula | None:
        given = self.choices.inflate.get(name)
        if given is None or isinstance(given, Hook):
            return given
        return Plain(given) if given in self.columns else Expression(str(given))

    # Correlations

    def _correlations(self, sources: Sequence[str]) -> dict[tuple[str, str], str | float]:
        """Correlations of pairs of sources: given, or columns that the pattern names in either order."""
        correlations: dict[tuple[str, str], str | float] = {}
        for i, a in enumerate(sources):
            for b in sources[:i]:
                column = self._pair(b, a)
                if column is not None:
                    correlations[b, a] = column
        pairs = {frozenset(pair) for pair in combinations(sources, 2)}
        unused = [pair for pair in self.choices.correlation if frozenset(pair) not in pairs]
        if unused:
            raise ValueError(f"a correlation is given for {unused}, which are not two features with errors")
        return correlations

    def _pair(self, a: str, b: str) -> str | float | None:
        for pair in ((a, b), (b, a)):
            if pair in self.choices.correlation:
                return self.choices.correlation[pair]
        names = [name for pair in ((a, b), (b, a)) for name in self._inside(*pair)]
        names += [form.format(x, y) for x, y in _short_pairs(a, b) for form in ("{}{}cor", "{}:{}")]  # as VizieR has it
        return next((name for name in names if name in self.columns), None)

    def _inside(self, a: str, b: str) -> list[str]:
        """What a correlation may be called, with what both names begin or end with once: gaia_a_b_corr, a_b_corr_1."""
        pattern = self.choices.correlation_pattern
        patterns = (pattern, *([pattern.replace("_corr", "_CORR")] if pattern == CORRELATION_PATTERN else []))
        each = [before + _filled(form, a=x, b=y) + after for form in patterns for before, x, y, after in _shared(a, b)]
        return list(dict.fromkeys(each))


def _shared(a: str, b: str) -> list[tuple[str, str, str, str]]:
    """Two names as beginnings and ends that they share, and what is left of each: all ways, the plain one first."""
    befores = ["", *(a[:i] for i in range(1, len(a)) if a[i - 1] == "_" and b.startswith(a[:i]))]
    afters = ["", *(a[i:] for i in range(1, len(a)) if a[i] == "_" and b.endswith(a[i:]))]
    ways = ((x, y, x + y) for x in befores for y in afters)
    return [(before, a[len(before) : len(a) - len(after)], b[len(before) : len(b) - len(after)], after)
            for before, after, both in ways if len(both) < min(len(a), len(b))]  # fmt: skip


def _short_pairs(a: str, b: str) -> list[tuple[str, str]]:
    left, right = ((name, *conventions.short_names(name)) for name in (a, b))
    pairs = [(x, y) for x in left for y in right]
    return pairs + [pair[::-1] for pair in pairs]


def as_transforms(derive: Any, columns: Sequence[str] = ()) -> tuple[Transform, ...]:
    """Transforms from {feature: expression}, a transform, a word for one, or a list of these."""
    if derive is None:
        return ()
    if isinstance(derive, Mapping):
        made = [(Formulated(str(name), Expression(text)),) if isinstance(text, str) else as_transforms(text, columns)
                for name, text in derive.items()]  # fmt: skip
        return tuple(t for part in made for t in part)
    if isinstance(derive, tuple) and derive and all(isinstance(part, Transform) for part in derive):
        return (Joined(derive),)  # as tangent() gives it
    if isinstance(derive, (list, tuple)):
        return tuple(t for part in derive for t in as_transforms(part, columns))
    if isinstance(derive, str):
        return as_transforms(parse_transform(derive, columns))
    if not isinstance(derive, Transform):
        raise ValueError(f"derive must be {{feature: expression}}, a transform or its name, got {derive!r}")
    return (derive,)
