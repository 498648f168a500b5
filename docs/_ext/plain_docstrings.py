"""Docstrings as this project writes them, for Sphinx: aligned lists of settings, and plain text that is not markup."""

import re

SETTING = re.compile(r"^(\S(?:.*?\S)?)\s{2,}(\S.*)$")
LITERAL = re.compile(r"(``.+?``|:\w+:`.+?`|(?<!\*)\*\w[^*\n]*\*(?!\*))")


def as_definitions(paragraph):
    """Lines "name   what it is", aligned, with indented continuations, as a definition list; anything else as it is."""
    first = SETTING.match(paragraph[0])
    found, column = [], first.start(2) if first else 0
    for line in paragraph:
        if first and not line.startswith(" ") and line[column - 1 : column] == " ":
            found += [line[:column].strip(), f"    {line[column:].strip()}", ""]
        elif found and line.startswith(" "):
            found.insert(-1, f"    {line.strip()}")
        else:
            return paragraph
    return found


def escaped(line):
    """Stars and trailing underscores are stars and underscores, but for emphasis, literals and roles."""
    parts = LITERAL.split(line)
    plain = [re.sub(r"(\w)_(?!\w)", r"\1\\_", re.sub(r"\*", r"\\*", part)) for part in parts[::2]]
    parts[::2] = plain
    return "".join(parts)


def convert(app, what, name, obj, options, lines):
    """Rewrite a docstring in place."""
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    done = []
    for text in paragraphs:
        paragraph = text.split("\n")
        doctest = text.lstrip().startswith(">>>")
        block = all(line.startswith("    ") for line in paragraph if line)
        if doctest:
            done += [*paragraph, ""]
        elif block and text.strip():
            done += ["::", "", *paragraph, ""]
        else:
            done += [*map(escaped, as_definitions(paragraph)), ""]
    lines[:] = done


def skip(app, what, name, obj, skipped, options):
    """Leave out what scikit-learn adds to every estimator."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def setup(app):
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True}
