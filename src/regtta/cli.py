"""The command ``regtta``."""

import sys

from regtta.commands.terminal.wording import missing_extra


def main() -> None:
    """Run the command line; without typer, say how to get it."""
    try:
        from regtta.commands.terminal.app import app
    except ModuleNotFoundError as error:
        advice = missing_extra(error)
        if advice is None:
            raise
        sys.stderr.write(f"error: {advice}\n")
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        # A terminal without the letter λ shows a mark in its place instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="regtta")


if __name__ == "__main__":
    main()
