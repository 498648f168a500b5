"""The command members."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options, parsing
from .app import app, say, tell
from .tables import PerBatch, target_table, write_appended

if TYPE_CHECKING:
    import numpy as np

    from ..catalog.stream import CatalogSource
    from ..mixture._mixture import Mixture
    from ..rows.batch import Batch

SMALLEST = 1e-250  # a likelihood, relative to the larger of two: sums of its inverse do not overflow


@app.command()
def members(
    model: options.Model,
    data: options.Data,
    output: options.Output,
    field: Annotated[Path | None, typer.Option(help="A model of all else: MODEL is then of members alone.")] = None,
    fraction: Annotated[
        float | None, typer.Option(help="Fraction of the rows that are members. Default: fitted.", min=0, max=1)
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="NAME=0,3: components of MODEL that count as one. Repeatable.")
    ] = None,
    keep: options.Keep = None,
    columns: options.Columns = None,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    log_prior: options.LogPrior = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    device: options.Device = None,
    dtype: options.Number = None,
    force: options.Force = False,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Append to the rows the probability of where each comes from: a component, a group of them, or a cluster.

    From one model, columns p_0, p_1, ... of its components, numbered as `xdeconv info` does, or p_NAME of each --group
    and p_other of the rest; of a model with a background p_background too. With --field, the column p_member, and on
    standard output the fraction of members; a background of MODEL gives way to the field.
    """
    if field is None and fraction is not None:
        raise typer.BadParameter("needs a model of everything else: --field", param_hint="--fraction")
    if field is not None and group:
        raise typer.BadParameter("counts components of one model: leave out --field", param_hint="--group")
    target_table(output, [model, field, *data, config], force)
    from ..mixture._mixture import load

    mixture = load(model)
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = inputs.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    place = {"device": inputs.device_for(device, source, mixture.k), "dtype": dtype}
    if field is None:
        new = of_components(mixture, groups(group, mixture.k, mixture.background is not None), place)
    else:
        member = alone(mixture)
        new = of_two(member, in_the_order_of(member, load(field)), source, fraction, place)
    say(f"{write_appended(output, source, keep, new, numbers=3 * mixture.k):,} rows in {output}")


def groups(words: list[str] | None, k: int, background: bool = False) -> dict[str, list[int]]:
    """Components by the name of their column."""
    if not words:
        return {str(j): [j] for j in range(k)}
    groups = {name: _components(name, text, k) for name, text in (parsing.pairs(words, "--group") or {}).items()}
    named = [j for chosen in groups.values() for j in chosen]
    repeated = sorted({j for j in named if named.count(j) > 1})
    if repeated:
        raise typer.BadParameter(f"component {repeated[0]} is named twice", param_hint="--group")
    rest = [j for j in range(k) if j not in named]
    for taken, what in _taken(bool(rest), background).items():
        if taken in groups:
            raise typer.BadParameter(f"{taken} is the name of {what}", param_hint="--group")
    return {**groups, "other": rest} if rest else groups


def _taken(rest: bool, background: bool) -> dict[str, str]:
    """Names of columns that are written whatever the groups are."""
    other = {"other": "all components in no group"} if rest else {}
    return other | ({"background": "the model's background"} if background else {})


def _components(name: str, text: str, k: int) -> list[int]:
    """The components of one group: at least one, or a variable of the shell that is not set makes members of none."""
    numbers = parsing.listed(text)
    if not name or not numbers:
        said = f"{f'{name}={text}'!r} is not NAME=COMPONENTS, such as cluster=0,3"
        raise typer.BadParameter(said, param_hint="--group")
    return [_component(word, k) for word in numbers]


def _component(word: str, k: int) -> int:
    if not word.isdigit() or int(word) >= k:
        text = f"{word!r} is not a component: the model has 0 to {k - 1}"
        raise typer.BadParameter(text, param_hint="--group")
    return int(word)


def of_components(mixture: Mixture, chosen: dict[str, list[int]], place: dict[str, Any]) -> PerBatch:
    """Responsibilities of a mixture's components, summed over groups."""

    def columns(batch: Batch, _: Any) -> dict[str, np.ndarray]:
        each = mixture.responsibilities(batch, **place)
        shares = {name: each[:, components].sum(axis=1) for name, components in chosen.items()}
        probabilities = {f"p_{name}": share.clip(max=1.0) for name, share in shares.items()}  # not 1 + 2e-16
        if mixture.background is not None:
            probabilities["p_background"] = mixture.background_probability(batch, **place)
        return probabilities

    return columns


def alone(mixture: Mixture) -> Mixture:
    """The components of the members: a background is of all else, whose place a field takes."""
    if mixture.background is None:
        return mixture
    say("the background of MODEL is left out: the field takes its place")
    return mixture.with_(background=None)


def in_the_order_of(member: Mixture, field: Mixture) -> Mixture:
    """The field in the coordinates of the members, in their order, where it has them all."""
    ours, theirs = member.labels, field.labels
    return field.marginal(list(ours)) if ours and theirs and ours != theirs and set(ours) <= set(theirs) else field


def of_two(
    member: Mixture, field: Mixture, source: CatalogSource, fraction: float | None, place: dict[str, Any]
) -> PerBatch:
    """The probability of being a member, with the fraction given or fitted to all rows first."""
    import numpy as np

    from ..mixture.classifier import Classifier

    classifier = Classifier({"member": member, "field": field}, "equal")
    if fraction is None:
        odds = np.diff(-classifier.log_joint(source, **place), axis=1)[:, 0]
        fraction, sd = fitted_fraction(odds)
        tell(f"fraction of members {fraction:.6g} +- {sd:.2g}")
    priors = {"member": fraction, "field": 1 - fraction}

    def columns(batch: Batch, _: Any) -> dict[str, np.ndarray]:
        return {"p_member": classifier.predict_proba(batch, priors=priors, **place)[:, 0]}

    return columns


def fitted_fraction(log_ratios: np.ndarray) -> tuple[float, float]:
    """The likeliest fraction f of sum log(f r + 1 - f) for log-ratios log r (n,), and its standard error.

    The likelihood is concave in f, so that its slope has one zero or the fraction is at an end.
    """
    import numpy as np
    from scipy.optimize import bisect

    if not len(log_ratios):
        raise ValueError("there are no rows to fit the fraction of members to")
    larger = np.maximum(log_ratios, 0.0)  # both parts are divided by the larger one: no overflow
    r, one = np.exp(log_ratios - larger), np.exp(-larger)

    def slopes(f: float) -> np.ndarray:
        return (r - one) / np.maximum(f * r + (1 - f) * one, SMALLEST)

    if slopes(0.0).sum() <= 0:
        fraction = 0.0
    elif slopes(1.0).sum() >= 0:
        fraction = 1.0
    else:
        fraction = float(bisect(lambda f: slopes(f).sum(), 0.0, 1.0, xtol=1e-15))
    return fraction, float(1 / np.sqrt(max(float(np.sum(slopes(fraction) ** 2)), SMALLEST)))
