"""Colours: contrast by WCAG 2 on every background and in every palette."""

from colorsys import rgb_to_hls
from itertools import pairwise

import pytest
from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, TerminalTheme

from attnctl.drawing.screen.palette import STEPS, STYLES, ramp


def colours(text):
    return [tuple(bytes.fromhex(word)) for word in text.split()]


SOLARIZED = "073642 dc322f 859900 b58900 268bd2 d33682 2aa198 eee8d5"
SOLARIZED += " 002b36 cb4b16 586e75 657b83 839496 6c71c4 93a1a1 fdf6e3"
XTERM = "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
XTERM += " 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff"
VGA = "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa"
VGA += " 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff"

THEMES = {
    "dark": TerminalTheme((0, 0, 0), (229, 229, 229), colours(XTERM)),
    "console": TerminalTheme((0, 0, 0), (170, 170, 170), colours(VGA)),
    "light": TerminalTheme((255, 255, 255), (0, 0, 0), colours(XTERM)),
    "Solarized dark": TerminalTheme((0, 43, 54), (131, 148, 150), colours(SOLARIZED)),
    "Solarized light": TerminalTheme((253, 246, 227), (101, 123, 131), colours(SOLARIZED)),
    "Rich's SVG": DEFAULT_TERMINAL_THEME,
}
SYSTEMS = ["truecolor", "256", "standard"]


def luminance(colour):
    """Relative luminance of (red, green, blue)."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def shown(style, theme):
    """The colours of text and background that a style gives in a theme."""
    style = Style.parse(style)
    text = style.color.get_truecolor(theme) if style.color else theme.foreground_color
    behind = style.bgcolor.get_truecolor(theme) if style.bgcolor else theme.background_color
    return (behind, text) if style.reverse else (text, behind)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_digits_on_every_shade_have_enough_contrast(system, theme):
    own = contrast(theme.foreground_color, theme.background_color)
    for style in ramp(system):
        assert contrast(*shown(style, theme)) >= (4.5 if Style.parse(style).bgcolor else own)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("name", STYLES)
def test_words_are_as_readable_as_the_theme_makes_its_own_text(name, theme):
    assert contrast(*shown(STYLES[name], theme)) == contrast(theme.foreground_color, theme.background_color)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("system", ["truecolor", "256"])
def test_every_shade_stands_out_from_the_background(system, theme):
    for style in ramp(system):
        assert contrast(shown(style, theme)[1], theme.background_color) >= 2


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_ramp_is_one_hue_that_gets_lighter(system):
    shades = [Style.parse(style).bgcolor for style in ramp(system)]
    assert len(shades) == STEPS
    shades = [ColorTriplet(*shade.get_truecolor(THEMES["dark"])) for shade in shades if shade]
    lightness = [luminance(shade) for shade in shades]
    assert all(a <= b for a, b in pairwise(lightness))
    assert len(set(lightness)) == {"truecolor": 8, "256": 4, "standard": 1}[system]
    hues = [hue(shade) for shade in shades]
    assert max(hues) - min(hues) <= 12


def hue(colour):
    """Degrees on the wheel of hues."""
    return 360 * rgb_to_hls(*(c / 255 for c in colour))[0]


def test_no_one_colour_of_text_is_readable_on_every_background():
    """Which is why words have none."""
    themes = [theme.background_color for theme in THEMES.values()]
    colours = [Color.from_ansi(number).get_truecolor() for number in range(16, 256)]
    assert not any(all(contrast(colour, behind) >= 4.5 for behind in themes) for colour in colours)
