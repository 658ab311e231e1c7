"""Formatting of numbers for tables and text."""


def number(value: float, *, signed: bool = False) -> str:
    """Format ``value`` with three decimals and a typographic minus sign; zero has no sign.

    Example:
        >>> number(-0.1), number(0.1, signed=True), number(-0.0001)
        ('−0.100', '+0.100', '0.000')
    """
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def source_models(count: int) -> str:
    """Format a number of source models.

    Example:
        >>> source_models(1), source_models(3)
        ('one source model', '3 source models')
    """
    return "one source model" if count == 1 else f"{count} source models"
