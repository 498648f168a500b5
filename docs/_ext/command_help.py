"""The directive command-help: what `xdeconv COMMAND --help` prints."""

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
