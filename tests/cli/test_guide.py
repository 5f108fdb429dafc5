"""`keystead guide`: the page that a message names is found, in the sources and in the built guide."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from keystead.cli import guide_command
from keystead.schema.finding import CODES, Finding
from tests.cli.program import Program


def address_of(program: Program, *page: str) -> str:
    shown = program.keystead("guide", *page)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.strip()


def test_every_link_of_a_finding_opens_its_page(program: Program) -> None:
    link = CODES["overlap"].link
    address = urlsplit(address_of(program, link))
    page = Path(address.path)
    assert page.stem == "findings"
    assert address.fragment == "overlap"
    assert all(code.link.startswith("docs/reference/findings.md#") for code in CODES.values())


def test_the_command_that_a_finding_names_opens_its_page(program: Program) -> None:
    finding = Finding("overlap", "two families", "They collide.", "Rename one.")
    page = Path(urlsplit(address_of(program, *finding.guide.split()[2:])).path)
    assert (page.parent.name, page.stem) == ("reference", "findings")


def test_every_page_is_found_by_its_path_and_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page of the first folder precedes one of the same name below it: `sessions` is the page that explains them."""
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.setattr(guide_command, "_BUILT", docs / "nothing")
    pages = [path.relative_to(docs) for path in docs.rglob("*.md")]
    upper = {path.stem for path in pages if len(path.parts) == 1}
    wrong = []
    for page in pages:
        for form in [
            f"docs/{page}",
            str(page),
            str(page.with_suffix("")),
            *([] if page.stem in upper else [page.stem]),
        ]:
            guide_command.guide(form)
            if capsys.readouterr().out != f"{(docs / page).as_uri()}\n":
                wrong.append(form)
    for name in upper:
        guide_command.guide(name)
        if capsys.readouterr().out != f"{(docs / name).as_uri()}.md\n":
            wrong.append(name)
    assert wrong == []


def test_without_a_page_it_opens_the_first_one(program: Program) -> None:
    assert Path(urlsplit(address_of(program)).path).stem == "index"


def test_a_translated_page_opens_in_the_language_of_the_terminal(program: Program) -> None:
    for language, folder in (("en", "docs"), ("ja", "ja"), ("ko", "ko")):
        shown = program.keystead("guide", "tutorial", KEYSTEAD_LANGUAGE=language)
        path = Path(urlsplit(shown.stdout.strip()).path)
        assert (path.stem, path.parent.name) == (
            "tutorial",
            folder if path.suffix == ".md" or language != "en" else "guide",
        )


def test_a_misspelt_page_is_a_usage_error_with_the_nearest_one(program: Program) -> None:
    shown = program.keystead("guide", "sesions")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == "keystead: sesions is not a page of the guide; did you mean sessions?\n"


def test_the_built_guide_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reference").mkdir()
    for page in ("index", "reference/errors"):
        (tmp_path / f"{page}.html").write_text("<p>")
    monkeypatch.setattr(guide_command, "_BUILT", tmp_path)
    guide_command.guide("docs/reference/errors.md")
    assert capsys.readouterr().out == f"{(tmp_path / 'reference' / 'errors.html').as_uri()}\n"
