"""Extreme deconvolution: the density of the true values behind noisy, incomplete data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Batch as Batch
    from .catalog import open as open
    from .classifier import Classifier as Classifier
    from .estimator import XDGMM as XDGMM
    from .fitting import FitResult as FitResult
    from .fitting import fit as fit
    from .history import Callback as Callback
    from .history import CSVLogger as CSVLogger
    from .history import Epoch as Epoch
    from .initial import Start as Start
    from .methods import EM as EM
    from .methods import SGD as SGD
    from .methods import Decaying as Decaying
    from .methods import Fixed as Fixed
    from .methods import Stepped as Stepped
    from .mixture import Mixture as Mixture
    from .mixture import load as load
    from .moves import Moves as Moves
    from .posterior import Posterior as Posterior
    from .prior import Prior as Prior
    from .report import explore as explore
    from .resampling import Bootstrap as Bootstrap
    from .resampling import bootstrap as bootstrap
    from .selection import Selection as Selection
    from .selection import select as select

_HOME = {
    "Batch": "batch",
    "CSVLogger": "history",
    "Callback": "history",
    "Epoch": "history",
    "EM": "methods",
    "SGD": "methods",
    "Decaying": "methods",
    "Fixed": "methods",
    "FitResult": "fitting",
    "Mixture": "mixture",
    "Moves": "moves",
    "Posterior": "posterior",
    "Prior": "prior",
    "Start": "initial",
    "Stepped": "methods",
    "Bootstrap": "resampling",
    "Selection": "selection",
    "XDGMM": "estimator",
    "Classifier": "classifier",
    "bootstrap": "resampling",
    "explore": "report",
    "fit": "fitting",
    "load": "mixture",
    "open": "catalog",
    "select": "selection",
}
_MODULES = ("compat", "data", "gaia", "initial", "plot", "simulate", "sky")

__all__ = [*_HOME, *_MODULES]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Public names are imported on first use: importing xdeconv imports no torch."""
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'xdeconv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
