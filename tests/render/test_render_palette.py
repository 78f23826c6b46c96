"""Colours: contrast by WCAG 2 on every background and in every palette."""

from colorsys import rgb_to_hls
from itertools import pairwise

import pytest
from rich.color import Color
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, TerminalTheme

from attnctl.base.errors import AttnError
from attnctl.drawing.screen import palette as module
from attnctl.drawing.screen.palette import STEPS, STYLES, background, backgrounds, ramp


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


def ground(theme):
    return "light" if luminance(theme.background_color) > 0.5 else "dark"


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_digits_on_every_shade_have_enough_contrast(system, theme):
    own = contrast(theme.foreground_color, theme.background_color)
    for style in ramp(system, ground(theme)):
        assert contrast(*shown(style, theme)) >= (4.5 if Style.parse(style).bgcolor else own)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("name", STYLES)
def test_words_are_as_readable_as_the_theme_makes_its_own_text(name, theme):
    assert contrast(*shown(STYLES[name], theme)) == contrast(theme.foreground_color, theme.background_color)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_each_level_is_further_from_the_background_than_the_one_before(system, theme):
    behind = theme.background_color
    own = [contrast(shown(style, theme)[1], behind) for style in ramp(system, ground(theme))]
    assert len(own) == STEPS
    if system == "standard":  # a theme may make any colours
        assert set(own) == {1}
        assert not any(Style.parse(style).color for style in ramp(system, ground(theme)))
    else:
        assert all(a < b for a, b in pairwise([1, *own]))


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("system", ["truecolor", "256"])
@pytest.mark.parametrize("sign", [1, -1])
def test_so_is_each_shade_of_a_heat_map_and_signs_differ_in_hue(system, theme, sign):
    levels = backgrounds(system, ground(theme))
    colours = [Color.parse(levels[sign * level]).get_truecolor(theme) for level in range(1, STEPS + 1)]
    far = [contrast(colour, theme.background_color) for colour in colours]
    assert all(a < b for a, b in pairwise([1, *far]))
    hues = [hue(colour) for colour in colours]
    assert all(180 <= each <= 250 for each in hues) if sign > 0 else all(0 <= each <= 60 for each in hues)


@pytest.mark.parametrize("background", ["dark", "light"])
def test_few_colours_have_no_heat_map(background):
    assert backgrounds("standard", background) == {}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, "dark"),
        ({"COLORFGBG": "0;15"}, "light"),
        ({"COLORFGBG": "12;8"}, "dark"),
        ({"COLORFGBG": "0;default;7"}, "light"),
        ({"COLORFGBG": "x"}, "dark"),
        ({"COLORFGBG": "0;15", "ATTNCTL_BACKGROUND": "dark"}, "dark"),
        ({"ATTNCTL_BACKGROUND": "light"}, "light"),
    ],
)
def test_the_background_as_it_is_said(environ, found):
    assert background(environ, ask=False) == found


def test_a_background_that_is_none_is_refused():
    with pytest.raises(AttnError, match="ATTNCTL_BACKGROUND: 'red' is no background; use dark or light"):
        background({"ATTNCTL_BACKGROUND": "red"}, ask=True)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?6c", "light"),
        (b"\x1b]11;rgb:00/2b/36\x07\x1b[?1;2c", "dark"),
        (b"\x1b]11;rgba:fdfd/f6f6/e3e3/ffff\x07\x1b[?1;2c", "light"),
        (b"\x1b[?1;2c", "dark"),
        (b"\x1b]11;nothing\x07", "dark"),
        (b"", "dark"),
    ],
)
def test_the_background_as_the_terminal_answers(monkeypatch, answer, found):
    monkeypatch.setattr(module, "ask_terminal", lambda: answer)
    module.background_of_terminal.cache_clear()
    assert background({}, ask=True) == found
    module.background_of_terminal.cache_clear()


def hue(colour):
    """Degrees on the wheel of hues."""
    return 360 * rgb_to_hls(*(c / 255 for c in colour))[0]


def test_no_one_colour_of_text_is_readable_on_every_background():
    """Which is why words have none."""
    themes = [theme.background_color for theme in THEMES.values()]
    colours = [Color.from_ansi(number).get_truecolor() for number in range(16, 256)]
    assert not any(all(contrast(colour, behind) >= 4.5 for behind in themes) for colour in colours)
