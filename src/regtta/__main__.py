"""Entry point of ``python -m regtta``."""

from regtta.cli import main

if __name__ == "__main__":
    main()
