"""Formatting of numbers for tables and text."""


def format_number(value: float, *, signed: bool = False) -> str:
    """Format ``value`` with three decimals and a typographic minus sign; zero has no sign.

    Example:
        >>> format_number(-0.1), format_number(0.1, signed=True), format_number(-0.0001)
        ('−0.100', '+0.100', '0.000')
    """
    text = f"{value:+.3f}" if signed else f"{value:.3f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def format_model_count(count: int) -> str:
    """Format a number of source models.

    Example:
        >>> format_model_count(1), format_model_count(3)
        ('one source model', '3 source models')
    """
    return "one source model" if count == 1 else f"{count} source models"
