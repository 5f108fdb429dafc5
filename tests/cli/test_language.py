"""The command line in Japanese and Korean: help, messages, errors and tables. What programs read stays as it is."""

import re
import unicodedata

import pytest

from keystead.cli import COMMANDS
from tests.cli.program import Program, assert_one_sentence

LOCALES = {"ja": "ja_JP.UTF-8", "ko": "ko_KR.UTF-8"}
OWN_LETTERS = {"ja": r"[ぁ-ヿ]", "ko": r"[가-힣]"}
# Options, metavars, examples, names and values, which are the same in every language.
NAMES = re.compile(
    r"--?[a-z-]+|[A-Z_]{2,}(?:=[A-Z]+)?|\b(?:keystead|first|redis|sqlite|myapp|serve|role|kits|docs|env|Redis|FastAPI|README"
    r"|fastapi|script|Markdown|HTML|JSON|TypeScript|Schema|Upstash|Sessions|Slack|Ctrl-C|Patreon)\b"
)


def width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line)


@pytest.mark.parametrize("language", LOCALES)
def test_the_list_of_commands_is_translated_and_fits_the_terminal(program: Program, language: str) -> None:
    shown = program.keystead("-h", LC_ALL=LOCALES[language], COLUMNS="80").stdout
    lines = {line[2:14].strip(): line for line in shown.splitlines() if line.startswith("│")}
    assert [name for name in COMMANDS if not re.search(OWN_LETTERS[language], lines[name])] == []
    assert "…" not in shown
    assert max(map(width, shown.splitlines())) <= 80
    assert "Options" not in shown
    assert "Usage" not in shown


@pytest.mark.parametrize("language", LOCALES)
@pytest.mark.parametrize("command", ["show", "gateway token create", "teamwork add-deadline"])
def test_the_help_of_a_command_has_no_english_words_but_names(program: Program, language: str, command: str) -> None:
    shown = program.keystead(*command.split(), "-h", LC_ALL=LOCALES[language], COLUMNS="200").stdout
    described = [line for line in shown.splitlines() if re.search(OWN_LETTERS[language], line)]
    assert len(described) > 4
    text = NAMES.sub("", "\n".join(described))
    assert [line for line in text.splitlines() if re.search(r"[a-z]{3,} (?:the|of|a|to|is|are) [a-z]", line)] == []


def test_errors_and_hints_are_translated(program: Program) -> None:
    wrong = program.keystead("doctor", "myapp.keys", "--family", "sesion", LC_ALL="ja_JP.UTF-8")
    assert_one_sentence(wrong, 2, "ファミリー 'sesion' はありません", "session のことですか?")
    near = program.keystead("doktor", LC_ALL="ko_KR.UTF-8")
    assert near.returncode == 2
    assert "'doktor' 명령은 없습니다. 'doctor'를 찾으셨나요?" in near.stderr
    option = program.keystead("doctor", "--famly", "x", LC_ALL="ja_JP.UTF-8")
    assert "--family のことですか?" in option.stderr
    missing = program.keystead("backup", LC_ALL="ja_JP.UTF-8")
    assert "'FILE' を指定してください。" in missing.stderr
    assert "エラー" in missing.stderr


def test_what_people_read_follows_the_locale_and_what_programs_read_does_not(program: Program) -> None:
    program.fill()
    english, japanese = (
        program.keystead("show", "--keyspace", "myapp.keys", LC_ALL=one) for one in ("C.UTF-8", "ja_JP.UTF-8")
    )
    assert "time to live" in english.stdout
    assert "残り時間" in japanese.stdout
    assert "ファミリー 5 個のうち 4 個にキー 5 件" in japanese.stdout
    for command in (("check", "myapp.keys"), ("doctor", "myapp.keys")):
        as_json = {program.keystead(*command, "--json", LC_ALL=one).stdout for one in ("C.UTF-8", "ko_KR.UTF-8")}
        assert len(as_json) == 1, command


def test_the_setting_goes_before_the_locale(program: Program) -> None:
    summary = program.keystead("check", "myapp.keys", LC_ALL="ja_JP.UTF-8", KEYSTEAD_LANGUAGE="ko").stdout
    assert summary == "키스페이스 1개, 패밀리 5개: 발견 항목 없음\n"
