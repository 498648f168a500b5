"""What a fit had, found again: its rows, read as it read them with their weights and groups, and what it held fixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..fitting.beside.inflating import grouped_data
from ..methods.fixed import Fixed
from ..mixture._mixture import Mixture
from ..mixture.asking import Asked
from ..mixture.facts import table
from ..rows.data import Source, as_source


def fitted_rows(data: Any, mixture: Mixture, given: Mapping[str, Any]) -> Source:
    """Whatever a fit takes, as a source of rows in the mixture's coordinates.

    Parameters
    ----------
    data : array-like, table, path, Batch or Source
        The rows of the fit.
    mixture : Mixture
        What came of them.
    given : mapping
        noise, error, projection, weight, log_prior and label, where rows are arrays.

    Returns
    -------
    Source
    """
    rows = Asked.of(mixture).rows(data, given, fitted=True)
    return as_source(grouped_data(rows, None, mixture)[0])


def fitted_fixed(mixture: Mixture) -> Fixed | None:
    """What the fit of a mixture held fixed, as the mixture remembers it.

    Parameters
    ----------
    mixture : Mixture
        What came of the fit.

    Returns
    -------
    Fixed or None
        None where nothing was held, or nothing is known of it.
    """
    told = table(mixture.meta or {}, "fit")
    if (told.get("components"), told.get("dim")) != (mixture.k, mixture.d):
        return None
    try:
        (_, settings) = json.loads(told["method"])
        (_, choices) = settings["fixed"]
        return Fixed(**choices)
    except (KeyError, TypeError, ValueError):  # a method that holds nothing, or of the user's own
        return None
