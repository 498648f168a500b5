"""The calls of other tools, with this engine behind them.

``extreme_deconvolution`` is Bovy's call. ``compat.astroml.XDGMM`` and ``compat.tholoien.XDGMM`` take what users of
those two classes write: change the import and nothing else. ``compat.pygmmis`` has pygmmis' GMM, Background and fit.
"""

from . import astroml, pygmmis, tholoien
from .bovy import extreme_deconvolution

__all__ = ["astroml", "extreme_deconvolution", "pygmmis", "tholoien"]
