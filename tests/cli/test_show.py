"""`keystead show` as a user meets it."""

from tests.cli.program import SEALED, Program, assert_one_sentence, output


def test_a_table_of_what_is_there(program: Program) -> None:
    program.fill()
    program.write(("SET", "tmp:1", "x"), ("SET", "account:u1", SEALED))
    result = program.keystead("show", "--keys", "myapp.keys")
    assert (result.returncode, result.stderr) == (0, "")
    assert "AppKeys.session" in result.stdout
    assert "sess:{sid}" in result.stdout
    assert '{"name": "Ada", "secret": "(sealed)"}' in result.stdout
    assert "sealed.2026" not in result.stdout
    assert "7 keys in 5 of 5 families" in result.stdout
    assert "1 key belongs to no family: tmp:1" in result.stdout


def test_json_holds_all_of_it(program: Program) -> None:
    program.fill()
    found = output(program.keystead("show", "--keys", "myapp.keys", "--json", "--samples", "1"))
    by_name = {one["family"]: one for one in found["families"]}
    assert by_name["AppKeys.session"]["count"] == 2
    assert by_name["AppKeys.session"]["ttl"]["<30d"] == 2
    assert by_name["AppKeys.session"]["about"] is False
    assert len(by_name["AppKeys.session"]["samples"]) == 1
    assert by_name["AppKeys.session"]["samples"][0]["value"] == {"uid": "u1"}
    assert found["unknown"] == {"count": 0, "examples": []}


def test_one_family_in_detail(program: Program) -> None:
    program.fill()
    result = program.keystead("show", "session", "--keys", "myapp.keys")
    assert result.returncode == 0
    assert "30 days" in result.stdout
    assert '{"uid": "u1"}' in result.stdout
    assert "AppKeys.lock" not in result.stdout
    assert_one_sentence(program.keystead("show", "nothing", "--keys", "myapp.keys"), 2, "there is no family 'nothing'")


def test_help_teaches_with_examples(program: Program) -> None:
    shown = program.keystead("show", "--help").stdout
    assert "keystead show session --keys myapp.keys --samples 10" in shown
