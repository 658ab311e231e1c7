"""Text into HTML: nothing a user wrote is ever taken for markup."""

import html
import re
from collections.abc import Iterable

# What a page cannot hold: control characters, and halves of letters, which an odd file name in a command can bring.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def escaped(text: str) -> str:
    """``text`` for anywhere in a page, attributes in double quotes included.

    Example:
        >>> escaped('<script> & "quotes"')
        '&lt;script&gt; &amp; &quot;quotes&quot;'
    """
    return html.escape(_UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n")))


def each(tag: str, texts: Iterable[str]) -> str:
    """An element for each text, each on a line of its own.

    Example:
        >>> each("li", ["a < b"])
        '<li>a &lt; b</li>'
    """
    return "\n".join(f"<{tag}>{escaped(text)}</{tag}>" for text in texts)
