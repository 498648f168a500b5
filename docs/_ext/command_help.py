"""The directive command-help: what `xdeconv COMMAND --help` prints.

Sphinx has no directive that shows what a program prints, and those of others either read the command's objects
(sphinx-click), which is not what a user sees, or start a process per command (sphinxcontrib-programoutput). All other
pages are made by Sphinx and its own extensions.
"""

import os

from docutils import nodes
from docutils.parsers.rst import Directive

WIDTH = "100"


class CommandHelp(Directive):
    """A literal block with the help of a command, or of the program without a name."""

    optional_arguments = 1

    def run(self):
        os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = WIDTH
        from typer.testing import CliRunner

        from xdeconv import cli

        result = CliRunner().invoke(cli.app, [*self.arguments, "--help"], prog_name="xdeconv")
        if result.exit_code:
            raise self.error(f"xdeconv {' '.join(self.arguments)} --help failed: {result.output}")
        return [nodes.literal_block(result.output, result.output, language="text")]


def setup(app):
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
