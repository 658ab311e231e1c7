"""Entry point of the ``regtta`` command."""

import sys

from regtta.optional_imports import missing_extra_message


def main() -> None:
    """Run the command line; if typer is missing, print how to install it."""
    try:
        from regtta.cli.app import app
    except ModuleNotFoundError as error:
        advice = missing_extra_message(error)
        if advice is None:
            raise
        sys.stderr.write(f"error: {advice}\n")
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        # Encodings without letters such as λ print a replacement character instead of raising.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="regtta")


if __name__ == "__main__":
    main()
