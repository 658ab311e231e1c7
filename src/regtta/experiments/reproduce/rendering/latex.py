"""LaTeX rendering of sheets, with booktabs rules."""

from collections.abc import Iterable

from regtta.experiments.reproduce.rendering.sheets import Line, Sheet, Text, columns_of_text

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "✓": r"$\checkmark$",
    "–": "--",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
}


def as_latex(sheets: Iterable[Sheet]) -> str:
    """Render each sheet as a LaTeX ``table``; the document must load ``booktabs``."""
    return "\n".join(_sheet(sheet) for sheet in sheets)


def _sheet(sheet: Sheet) -> str:
    rows = [_row([_name(line), *(_text(text, line) for text in line.texts)]) for line in sheet.lines]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(sheet.title)}. {' '.join(escaped(note) for note in sheet.notes)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}",
        r"\toprule",
        _row(escaped(column) for column in columns_of_text(sheet)),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _row(texts: Iterable[str]) -> str:
    return rf"{' & '.join(texts)} \\"


def _name(line: Line) -> str:
    return rf"\emph{{{line.name}}}" if line.of_paper else escaped(line.name)


def _text(text: Text, line: Line) -> str:
    if line.of_paper and text.text:
        return rf"\emph{{{escaped(text.text)}}}"
    return rf"\textbf{{{escaped(text.text)}}}" if text.bold else escaped(text.text)


def escaped(text: str) -> str:
    r"""Return ``text`` with LaTeX's special characters escaped and symbols in math mode.

    Example:
        >>> escaped("R² of 50 %_k")
        'R$^2$ of 50 \\%\\_k'
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
