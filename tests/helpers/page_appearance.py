"""Contrast of the texts of a page, measured in a browser."""

import re


def luminance(colour):
    """Return the relative luminance of WCAG 2: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def opaque_channels(colour):
    """Return the channels of an opaque ``rgb(…)`` colour, or None if it is transparent."""
    parts = [float(part) for part in re.fullmatch(r"rgba?\((.+)\)", colour)[1].split(",")]
    if len(parts) == 4 and parts[3] == 0:
        return None
    assert len(parts) == 3, f"{colour} is translucent; its contrast cannot be computed"
    return parts


TEXTS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, backgrounds = [];
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    for (let at = element; at; at = at.parentElement) backgrounds.push(getComputedStyle(at).backgroundColor);
    found.push([walker.currentNode.textContent, getComputedStyle(element).color, backgrounds]);
  }
  return found;
}"""


def assert_readable(view):
    texts = view.evaluate(TEXTS)
    assert len(texts) > 50
    for text, colour, backgrounds in texts:
        background = next(filter(None, map(opaque_channels, backgrounds)))
        assert contrast(opaque_channels(colour), background) >= 4.5, (text, colour, background)
