"""Options from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

WRITTEN = ("output", "picture", "per_row", "checkpoint", "results", "chosen_model", "paths", "plot model", "force")
"""Parameters, of one command where it stands before them, that decide which files are written: only the command line
may say them. A picture that `plot` was given no name for is called like its model, and lies beside it."""


def read_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Options of a TOML file become the command's defaults: its top level, and its table with the command's name."""
    if path is None:
        return None
    settings = _parsed(path)
    flat = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    own = settings.get(context.info_name or "", {})
    if not isinstance(own, Mapping):
        raise typer.BadParameter(f"{path}: {context.info_name} is {own!r}, not a table of options")
    flat = {**flat, **own}
    known = {name.lstrip("-"): p.name for p in context.command.params for name in (*p.opts, p.name or "")}
    _refuse(path, context, flat, known)
    repeated = {p.name for p in context.command.params if isinstance(p, typer.core.TyperOption) and p.multiple}
    chosen = {str(known[key]): _plain(path, key, value, known[key] in repeated) for key, value in flat.items()}
    context.default_map = {**(context.default_map or {}), **chosen}
    return path


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"cannot read {path}: {problem}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise typer.BadParameter(f"{path} is not TOML: {problem}") from problem
    except (RecursionError, ValueError) as problem:
        raise typer.BadParameter(f"{path} is nested too deeply, or has a number that is too long") from problem


def _refuse(path: Path, context: typer.Context, flat: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    unknown = [key for key in flat if key not in known]
    if unknown:
        raise typer.BadParameter(f"{path}: {context.info_name} has no option {', '.join(unknown)}")
    written = [key for key in flat if known[key] in WRITTEN or f"{context.info_name} {known[key]}" in WRITTEN]
    if written:
        text = f"{path} says {', '.join(written)}: what is written is said on the command line, never in a file"
        raise typer.BadParameter(text)


def _plain(path: Path, key: str, value: Any, repeated: bool) -> Any:
    """Lists of names as the command line writes them; those of an option that is repeated stay lists, of one too."""
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(v, (list, Mapping)) for v in value)):
        raise typer.BadParameter(f"{path}: {key} is neither a value nor a list of values")
    if repeated:
        return [str(v) for v in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, list) and all(isinstance(v, str) and "=" not in v for v in value):
        return ",".join(value)
    return value


Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file with options, which the command line overrides.",
                 callback=read_toml, is_eager=True),
]  # fmt: skip
