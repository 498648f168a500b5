"""What a model's ``meta`` tells: a user or somebody else may have written anything there under a fit's own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def number(meta: Mapping[str, Any], name: str, otherwise: Any = None) -> Any:
    """A number as a fit writes it, or something else where there is none under this name.

    >>> number({"epochs": 12}, "epochs"), number({"epochs": "J2016"}, "epochs", 0)
    (12, 0)
    """
    value = meta.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise


def table(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table as a fit writes it, empty where there is none under this name.

    >>> table({"fit": {"rows": 9}}, "fit"), table({"fit": "by hand"}, "fit")
    ({'rows': 9}, {})
    """
    value = meta.get(name)
    return value if isinstance(value, Mapping) else {}
