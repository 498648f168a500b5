"""The rows of a fit, given again: read as the fit read them, with the weights and the groups that it gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..fitting.beside.inflating import grouped_data
from ..mixture._mixture import Mixture
from ..mixture.asking import Asked
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
    asked = Asked(mixture.d, mixture.labels, mixture.units, mixture.meta or {})
    return as_source(grouped_data(asked.rows(data, given, fitted=True), None, mixture)[0])
