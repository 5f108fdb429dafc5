"""Pictures: their measures, and that text which people wrote is shown as text and stays in its place."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead.kits.widgets import pictures
from keystead.kits.widgets.pictures import BoardLine, RankingLine
from keystead.kits.widgets.themes import ICON_PATHS, THEMES, UnknownTheme

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script><image href='https://evil.example/x'/>&\"'"
FAMILY = "👩‍👩‍👧‍👦"


def read(picture: str) -> ElementTree.Element:
    """The picture, as an XML parser reads it."""
    return ElementTree.fromstring(picture.encode())


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in read(picture).iter(f"{SVG}text")]


def size(picture: str) -> tuple[int, int]:
    root = read(picture)
    return int(root.attrib["width"]), int(root.attrib["height"])


def every_picture(text: str, theme: str = "dark") -> list[str]:
    return [
        pictures.ranking(text, [RankingLine(1, text, text)], theme=theme),
        pictures.bbs(text, [BoardLine(text, text)], theme=theme),
        pictures.error(text),
    ]


# --- the counter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(0, None, "0"), (42, None, "42"), (42, 6, "000042"), (123_456, 3, "123456"), (999_999_999, 10, "0999999999")],
)
def test_a_counter_has_12_px_per_digit_and_pads_only_to_digits(value: int, digits: int | None, shown: str) -> None:
    picture = pictures.counter(value, digits=digits)
    assert texts(picture) == [shown]
    assert size(picture) == (12 * len(shown) + 20, 30)
    (text,) = read(picture).iter(f"{SVG}text")
    assert text.attrib["font-weight"] == "bold"
    assert (text.attrib["text-anchor"], float(text.attrib["x"])) == ("middle", size(picture)[0] / 2)


@pytest.mark.parametrize("theme", THEMES)
def test_a_counter_is_drawn_in_the_colours_of_its_theme(theme: str) -> None:
    picture, look = pictures.counter(7, theme=theme), THEMES[theme]
    for colour in (look.background, look.text, look.border):
        assert colour in picture


def test_the_badge_looks_like_other_readme_badges() -> None:
    picture = pictures.counter(1234, theme="github", digits=6)
    assert size(picture)[1] == 20
    assert set(texts(picture)) == {"visitors", "001234"}


@pytest.mark.parametrize("name", ["neon", "", "Dark"])
def test_an_unknown_theme_is_refused(name: str) -> None:
    with pytest.raises(UnknownTheme):
        pictures.counter(1, theme=name)
    with pytest.raises(UnknownTheme):
        pictures.like(1, theme=name)
    with pytest.raises(UnknownTheme):
        pictures.ranking(None, [], theme=name)
    with pytest.raises(UnknownTheme):
        pictures.bbs(None, [], theme=name)


# --- the others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("icon", ICON_PATHS)
def test_a_like_picture_shows_its_icon_filled_if_liked(icon: str) -> None:
    for liked in (False, True):
        picture = pictures.like(1300, theme="light", icon=icon, liked=liked)
        assert size(picture) == (120, 40)
        assert texts(picture) == ["1300"]
        (drawn,) = (path for path in read(picture).iter(f"{SVG}path") if path.attrib["d"] == ICON_PATHS[icon])
        assert drawn.attrib["fill"] == (THEMES["light"].like if liked else "none")


def test_a_ranking_shows_its_first_five_lines_and_a_board_its_first_three() -> None:
    many = [RankingLine(rank, f"name {rank}", str(100 - rank)) for rank in range(1, 20)]
    shown = texts(pictures.ranking("High scores", many))
    assert shown[0] == "High scores"
    assert shown[1:] == [part for line in many[:5] for part in (str(line.rank), line.name, line.score)]
    messages = [BoardLine(f"author {at}", f"message {at}") for at in range(20)]
    assert texts(pictures.bbs("Guests", messages)) == [
        *("Guests", "author 0", "message 0", "author 1", "message 1", "author 2", "message 2"),
    ]


def test_an_empty_list_says_so_in_the_same_frame() -> None:
    assert texts(pictures.ranking(None, [])) == ["Ranking", "No entries yet"]
    assert texts(pictures.bbs("", [])) == ["BBS", "No messages yet"]
    one = pictures.ranking(None, [RankingLine(1, "Ann", "5")])
    assert size(pictures.ranking(None, [])) == size(one)


def test_every_picture_has_a_title_with_its_content() -> None:
    told = {
        pictures.counter(42, digits=6): "Visits: 42",
        pictures.counter(42, theme="github"): "visitors: 42",
        pictures.like(3): "Likes: 3",
        pictures.ranking("Race", [RankingLine(1, "Ann", "12.5 s")]): "Race: 1. Ann, 12.5 s",
        pictures.bbs("Guests", [BoardLine("Ann", "Hello")]): "Guests: Ann: Hello",
        pictures.error(): "Error",
    }
    for picture, title in told.items():
        root = read(picture)
        assert root.attrib["role"] == "img"
        assert root[0].tag == f"{SVG}title"
        assert root[0].text == title


# --- text that people wrote ----------------------------------------------------------------------------------------


def test_hostile_text_is_shown_as_text() -> None:
    for picture in every_picture(HOSTILE):
        root = read(picture)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "defs", "rect", "text", "path", "linearGradient", "stop", "pattern", "circle"}
        attributes = {name for element in root.iter() for name in element.attrib}
        assert not any(name.startswith("on") or "href" in name for name in attributes)
        assert "</text><script>alert(1)" in "".join(root.itertext())


@pytest.mark.parametrize("theme", THEMES)
def test_themes_refer_to_nothing_outside_the_picture(theme: str) -> None:
    for picture in (*every_picture("x", theme), pictures.counter(1, theme=theme), pictures.like(1, theme=theme)):
        root = read(picture)
        known = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
        assert set(re.findall(r"url\(([^)]*)\)", picture)) <= {f"#{name}" for name in known}


@given(st.text(max_size=300) | st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Mn", "Lo"]), max_size=80))
def test_any_text_gives_valid_xml_without_control_characters(text: str) -> None:
    for picture in every_picture(text):
        shown = "".join(read(picture).itertext())
        assert not re.search("[\x00-\x1f\x7f\u202a-\u202e\u2066\u2067\ufffe\uffff]", shown)
        assert shown.count("\u2068") == shown.count("\u2069")


def test_right_to_left_text_is_isolated() -> None:
    (_, rank, name, score) = texts(pictures.ranking("T", [RankingLine(1, "\u05e9\u05dc\u05d5\u05dd \u202egpj", "12")]))
    assert (rank, name, score) == ("1", "\u2068\u05e9\u05dc\u05d5\u05dd gpj\u2069", "12")


def test_emoji_are_kept_whole_and_long_text_is_cut_between_characters() -> None:
    flags = "🇳🇴🇯🇵" * 20
    for text, whole in ((f"{FAMILY} ok", f"{FAMILY} ok"), ("👍🏽" * 3, "👍🏽" * 3), ("e\u0301" * 5, "e\u0301" * 5)):
        assert texts(pictures.bbs("T", [BoardLine("a", text)]))[2] == whole
    for text, unit in ((FAMILY * 60, FAMILY), (flags, "🇳🇴🇯🇵"), ("漢" * 100, "漢"), ("e\u0301" * 100, "e\u0301")):
        cut = texts(pictures.bbs("T", [BoardLine("a", text)]))[2]
        assert cut.endswith("…")
        kept = cut[:-1]
        assert kept
        assert (unit * 60).startswith(kept)
        assert len(kept) % (len(unit) // (2 if unit == "🇳🇴🇯🇵" else 1)) == 0


def test_piled_combining_marks_are_cut() -> None:
    shown = texts(pictures.bbs("T", [BoardLine("a", "z" + "\u0301" * 10_000 + "!")]))[2]
    assert len(shown) < 20
    assert shown.endswith("!")


@pytest.mark.parametrize("theme", THEMES)
def test_wide_text_fits_into_the_same_width(theme: str) -> None:
    narrow = texts(pictures.bbs("T", [BoardLine("a", "i" * 500)], theme=theme))[2]
    wide = texts(pictures.bbs("T", [BoardLine("a", "漢" * 500)], theme=theme))[2]
    assert len(wide) * 2 <= len(narrow) + 2
    assert all(size(picture)[0] <= 330 for picture in every_picture("漢" * 10_000, theme))
