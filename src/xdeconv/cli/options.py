"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .config import Config

__all__ = ["Config"]

Data = Annotated[list[str], typer.Argument(help="Files, globs, directories (HATS too) or a prepared store.")]
Model = Annotated[Path, typer.Argument(help="A model that `xdeconv fit` wrote.")]
Columns = Annotated[str | None, typer.Option("--columns", "-c", help="Features, separated by commas.")]
Where = Annotated[str | None, typer.Option(help='Use only rows where this holds, such as "ruwe < 1.4".')]
Errors = Annotated[
    list[str] | None,
    typer.Option("--error", help="FEATURE=COLUMN, =EXPRESSION, =NUMBER or =none: its standard deviation. Repeatable."),
]
Units = Annotated[list[str] | None, typer.Option("--unit", help="COLUMN=UNIT, such as ra_error=mas. Repeatable.")]
Derive = Annotated[
    list[str] | None,
    typer.Option(help='NAME=EXPRESSION of columns; "tangent:RA,DEC" makes xi, eta (degrees); "galactic" makes l, b, '
                 'pml, pmb; "rotation:POLE_RA,POLE_DEC,ZERO_RA,ZERO_DEC" makes phi1, phi2, pm_phi1, pm_phi2; '
                 '"velocities" makes U, V, W (km/s). Repeatable.'),
]  # fmt: skip
Correlation = Annotated[
    list[str] | None,
    typer.Option("--correlation", help="FEATURE,FEATURE=COLUMN, =NUMBER or =none: of their errors. Repeatable."),
]
ErrorPattern = Annotated[
    str | None, typer.Option("--error-pattern", help="What error columns are called. Default: {name}_error.")
]
CorrelationPattern = Annotated[
    str | None, typer.Option("--correlation-pattern", help="What correlations are called. Default: {a}_{b}_corr.")
]
LogPrior = Annotated[
    str | None,
    typer.Option("--log-prior", help="Columns of log-priors, one per component, separated by commas; none for none."),
]
Background = Annotated[
    str | None,
    typer.Option(help="What else makes rows: COLUMN=LOW:HIGH,... of every column, or a model to hold fixed."),
]
Tails = Annotated[str | None, typer.Option(help="Tails of Student's t instead of Gaussian ones: its nu, or fit.")]
Inflation = Annotated[
    str | None,
    typer.Option(
        help="Fit factors on errors: all, or words of=COLUMN,... by=COLUMN or by=COLUMN:EDGE,EDGE,... jitter=GROUP,..."
    ),
]
Selection = Annotated[
    list[str] | None,
    typer.Option(help="How rows were kept: a cut that made the table, as 'parallax_over_error > 5'. Repeatable."),
]
Offset = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to subtract: a zero point. Repeatable.")
]
Inflate = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER or EXPRESSION to multiply its error by. Repeatable.")
]
Missing = Annotated[
    list[str] | None, typer.Option(help="COLUMN=NUMBER that stands for a missing value, such as -999. Repeatable.")
]
CosDec = Annotated[
    bool | None,
    typer.Option("--cos-dec/--no-cos-dec", help="Whether an error of ra is one of ra cos dec. Default: it is."),
]
Preset = Annotated[
    Literal["paper-2019", "paper-2019-code"] | None, typer.Option(help="That paper's columns and errors.")
]
Covariance = Annotated[
    str, typer.Option(help="Covariances of components: full, tied, diagonal, spherical or low-rank:R.")
]
Weight = Annotated[str | None, typer.Option(help="Column of row weights.")]
Rows = Literal["refuse", "drop"]
BadRows = Annotated[Rows, typer.Option(help="What to do with rows of impossible errors, such as negative ones.")]
SkipBadFiles = Annotated[bool, typer.Option("--skip-bad-files", help="Leave out damaged files, and count them.")]
Keep = Annotated[
    str | None, typer.Option(help="Columns to pass through, separated by commas; * for all. Default: the identifiers.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File to write: .parquet, .arrow or .csv.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that xdeconv did not write.")]
Device = Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Default: cuda where there is one.")]
Number = Annotated[Literal["float32", "float64"] | None, typer.Option(help="Default: by device.")]
Epochs = Annotated[int | None, typer.Option(help="At most so many passes over the rows.", min=1)]
Tolerance = Annotated[
    float, typer.Option(help="Stop when the fit expects to gain less than this many nats, over all rows.", min=0)
]
PriorWidth = Annotated[
    float, typer.Option(help="w of the prior on covariances, a variance in the data's units.", min=0)
]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]
