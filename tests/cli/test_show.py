"""`keystead show`, end to end."""

import json

from tests.cli.program import SEALED, Program, assert_one_sentence, output


def test_a_table_lists_the_families_of_a_store(program: Program) -> None:
    program.fill()
    program.write(("SET", "tmp:1", "x"), ("SET", "account:u1", SEALED))
    result = program.keystead("show", "--keyspace", "myapp.keys")
    assert (result.returncode, result.stderr) == (0, "")
    assert "AppKeys.session" in result.stdout
    assert "sess:{sid}" in result.stdout
    assert '{"name": "Ada", "secret": "(sealed)"}' in result.stdout
    assert "sealed.2026" not in result.stdout
    assert "6 keys in 5 of 5 families" in result.stdout
    assert "1 key belongs to no family: tmp:1" in result.stdout


def test_json_output_is_complete(program: Program) -> None:
    program.fill()
    found = output(program.keystead("show", "--keyspace", "myapp.keys", "--json", "--samples", "1"))
    by_name = {one["family"]: one for one in found["families"]}
    assert by_name["AppKeys.session"]["count"] == 2
    assert by_name["AppKeys.session"]["ttl"]["<30d"] == 2
    assert by_name["AppKeys.session"]["about"] is False
    assert len(by_name["AppKeys.session"]["samples"]) == 1
    assert by_name["AppKeys.session"]["samples"][0]["value"] == {"uid": "u1"}
    assert found["unknown"] == {"count": 0, "examples": [], "shapes": []}


def test_one_family_in_detail(program: Program) -> None:
    program.fill()
    result = program.keystead("show", "session", "--keyspace", "myapp.keys")
    assert result.returncode == 0
    assert "30 days" in result.stdout
    assert '{"uid": "u1"}' in result.stdout
    assert "AppKeys.lock" not in result.stdout
    assert_one_sentence(
        program.keystead("show", "nothing", "--keyspace", "myapp.keys"), 2, "there is no family 'nothing'"
    )


def test_a_keyspace_alone_is_named_as_in_other_commands(program: Program) -> None:
    """By module, class, file or kit; a family of this name comes first."""
    program.fill()
    for name in ("myapp.keys", "myapp.keys:AppKeys", "myapp/keys.py"):
        shown = program.keystead("show", name)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "5 keys in 4 of 5 families" in shown.stdout
    assert "WidgetKeys.counters" in program.keystead("show", "widgets").stdout
    assert "WidgetKeys.counters" not in program.keystead("show", "counter").stdout
    before, after = ("myapp.keys", "session", "s1"), ("session", "s1", "--keyspace", "myapp.keys")
    shown = program.keystead("show", *before)
    assert shown.stdout.startswith("sess:s1: ")
    assert shown.stdout == program.keystead("show", *after).stdout
    elsewhere = program.keystead("show", "daily")
    assert_one_sentence(elsewhere, 2, "there is no family 'daily'; myapp.keys declares it: add -k myapp.keys")
    unknown = program.keystead("show", "sesion")
    assert_one_sentence(unknown, 2, "there is no family 'sesion'; did you mean session?")
    assert len(unknown.stderr) < 500, unknown.stderr


def test_keys_of_no_family_are_not_counted_as_keys_of_the_families(program: Program) -> None:
    program.write(*[("SET", f"tmp:{number}", "x") for number in range(7)], ("SET", "lock:s1", "x", "PX", 1_000_000))
    result = program.keystead("show", "--keyspace", "myapp.keys")
    assert "1 key in 1 of 5 families" in result.stdout
    assert "7 keys belong to no family: tmp:{int} (7)" in result.stdout
    found = output(program.keystead("show", "--keyspace", "myapp.keys", "--json"))
    assert (found["count"], found["unknown"]["count"]) == (1, 7)


def test_keys_of_other_kits_are_not_unknown_keys(program: Program) -> None:
    program.write(("SET", "counter:a:total", 1), ("SET", "outbox:trouble:counter:a", "{}"), ("SET", "tmp:1", "x"))
    found = output(program.keystead("show", "--keyspace", "myapp.keys", "--json"))
    assert found["others"] == {"WidgetKeys": 1, "OutboxKeys": 1}
    shapes = [{"shape": "tmp:{int}", "count": 1, "example": "tmp:1"}]
    assert found["unknown"] == {"count": 1, "examples": ["tmp:1"], "shapes": shapes}
    assert "OutboxKeys (1)" in program.keystead("show", "--keyspace", "myapp.keys").stdout


def test_a_missing_key_is_in_no_index(program: Program) -> None:
    program.write(("ZADD", "counters:index", 1, "another-a1b2c3d4"))
    result = program.keystead("show", "counter", "example-a1b2c3d4")
    assert (result.returncode, result.stdout) == (1, "")
    assert "there is no counter:example-a1b2c3d4" in result.stderr
    listed = program.keystead("show", "counter", "example-a1b2c3d4", "--json")
    assert json.loads(listed.stdout)["listed"] == []


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("show", "--help").stdout
    assert "keystead show myapp.keys session --samples 10" in shown
