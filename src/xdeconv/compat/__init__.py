"""The calls of other tools, with this engine behind them.

``extreme_deconvolution`` is Bovy's call. ``compat.astroml.XDGMM`` and ``compat.tholoien.XDGMM`` take what users of
those two classes write: change the import and nothing else.
"""

from . import astroml, tholoien
from .bovy import extreme_deconvolution

__all__ = ["astroml", "extreme_deconvolution", "tholoien"]
