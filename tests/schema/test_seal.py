"""Sealed fields are encrypted in the store, open only where they were sealed, and show nowhere else."""

import base64
import copy
import dataclasses
import json
import pickle
import string
import traceback
from typing import Any, assert_type

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, ValidationInfo, field_validator
from typing_extensions import TypedDict

from keystead import Hash, never
from keystead.errors import BadDeclaration, BadValue, Unreadable
from keystead.schema.codec import Codec, OmittedIfNone, Versions, codec_for
from keystead.schema.seal import KeyRing, Sealed, SealError, unsealed
from keystead.schema.times import EpochMs

KEY_A, KEY_B = bytes(range(32)), bytes(range(32, 64))
RING = KeyRing({"2026a": KEY_A})
SECRET = "ya29.the-access-token"
OTHER = "1//the-refresh-token"


class Session(BaseModel):
    uid: str
    access_token: Sealed[str]
    refresh_token: Sealed[str] | None = None
    ver: int = 1


class Account(BaseModel):
    provider: str
    token: Sealed[str]


class Accounts(BaseModel):
    main: Account
    others: list[Account] = []
    by_name: dict[str, Sealed[str]] = {}


SESSION = Session(uid="42", access_token=SECRET, refresh_token=OTHER)
CODEC = codec_for(Session)


def stored(codec: Codec[Any], value: Any, key: str = "sess:1", ring: KeyRing = RING, name: str = "") -> Any:
    """What is stored, as JSON, to be tampered with."""
    return json.loads(codec.encode(value, key, ring, name))


def base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def unread(
    codec: Codec[Any], tree: Any, key: str = "sess:1", ring: KeyRing | None = RING, name: str = ""
) -> Unreadable:
    """The error of a read. Neither it nor its cause contains a secret."""
    with pytest.raises(Unreadable) as caught:
        codec.decode(json.dumps(tree).encode(), key, ring, name)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in told
    assert OTHER not in told
    return caught.value


# What a sealed field is in Python, and in the store.


def test_a_type_checker_sees_the_plain_type() -> None:
    assert_type(SESSION.access_token, str)
    assert_type(SESSION.refresh_token, str | None)


def test_the_attribute_holds_the_plain_value() -> None:
    assert SESSION.access_token == SECRET


def test_the_store_holds_no_plain_secret() -> None:
    data = CODEC.encode(SESSION, "sess:1", RING)
    assert SECRET.encode() not in data
    assert OTHER.encode() not in data


def test_a_sealed_field_is_stored_as_one_text() -> None:
    tree = stored(CODEC, SESSION)
    assert list(tree) == ["uid", "access_token", "refresh_token", "ver"]
    assert KeyRing.sealed_with(tree["access_token"]) == "2026a"


def test_any_program_with_the_key_can_open_it_as_documented() -> None:
    codec = codec_for(Accounts)
    tree = stored(codec, Accounts(main=Account(provider="a", token="b"), others=[Account(provider="c", token=SECRET)]))
    prefix, key_id, iv, ciphertext = tree["others"][0]["token"].split(".")
    about = b'keystead\0sess:1\0["others",0,"token"]'
    plain = AESGCM(KEY_A).decrypt(base64url(iv), base64url(ciphertext), about)
    assert (prefix, key_id, plain) == ("sealed", "2026a", json.dumps(SECRET).encode())


def test_the_name_of_a_hash_field_comes_first_in_the_path() -> None:
    _, _, iv, ciphertext = codec_for(Sealed[str]).encode(SECRET, "user:1", RING, name="token").decode().split(".")
    about = b'keystead\0user:1\0["token"]'
    assert AESGCM(KEY_A).decrypt(base64url(iv), base64url(ciphertext), about) == json.dumps(SECRET).encode()


def test_a_sealed_value_round_trips() -> None:
    assert CODEC.decode(CODEC.encode(SESSION, "sess:1", RING), "sess:1", RING) == SESSION


def test_a_sealed_field_that_is_none_is_null() -> None:
    session = Session(uid="42", access_token=SECRET)
    assert stored(CODEC, session)["refresh_token"] is None
    assert CODEC.decode(CODEC.encode(session, "sess:1", RING), "sess:1", RING) == session


def test_a_sealed_field_may_be_left_out_while_it_is_none() -> None:
    class Link(BaseModel):
        id: str
        token: OmittedIfNone[Sealed[str]] = None

    assert codec_for(Link).encode(Link(id="1"), "k", RING) == b'{"id":"1"}'


def test_the_same_value_is_never_sealed_alike() -> None:
    assert stored(CODEC, SESSION)["access_token"] != stored(CODEC, SESSION)["access_token"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_sealed(text: str) -> None:
    codec = codec_for(Account)
    account = Account(provider="discord", token=text)
    if text != "(sealed)":
        assert codec.decode(codec.encode(account, "k", RING), "k", RING) == account


def test_twelve_sealed_fields_keep_their_own_values() -> None:
    accounts = Accounts(
        main=Account(provider="0", token="0"),
        others=[Account(provider=str(n), token=str(n)) for n in range(1, 12)],
        by_name={"a.b": "c", "": "d"},
    )
    codec = codec_for(Accounts)
    assert codec.decode(codec.encode(accounts, "k", RING), "k", RING) == accounts


def test_a_sealed_field_may_have_any_json_type() -> None:
    class Grant(BaseModel):
        claims: Sealed[dict[str, int]]
        until: Sealed[EpochMs]
        account: Sealed["Plain"]

    class Plain(BaseModel):
        name: str

    Grant.model_rebuild(_types_namespace={"Plain": Plain})
    codec = codec_for(Grant)
    grant = Grant.model_validate({"claims": {"a": 1}, "until": 1735657200000, "account": {"name": "x"}})
    assert codec.decode(codec.encode(grant, "k", RING), "k", RING) == grant


def test_a_value_can_be_sealed_as_a_whole() -> None:
    codec = codec_for(Sealed[str])
    data = codec.encode(SECRET, "k", RING)
    assert KeyRing.sealed_with(data.decode()) == "2026a"
    assert codec.decode(data, "k", RING) == SECRET


def test_a_typed_dict_can_have_sealed_fields() -> None:
    class Token(TypedDict):
        token: Sealed[str]

    codec = codec_for(Token)
    data = codec.encode({"token": SECRET}, "k", RING)
    assert SECRET.encode() not in data
    assert codec.decode(data, "k", RING) == {"token": SECRET}


# Where a sealed text opens.


def test_a_sealed_text_does_not_open_under_another_key() -> None:
    assert "access_token: does not open" in str(unread(CODEC, stored(CODEC, SESSION, "sess:1"), key="sess:2"))


def test_two_sealed_fields_that_change_places_do_not_open() -> None:
    tree = stored(CODEC, SESSION)
    tree["access_token"], tree["refresh_token"] = tree["refresh_token"], tree["access_token"]
    unread(CODEC, tree)


def test_a_sealed_text_that_is_copied_to_another_field_does_not_open() -> None:
    tree = stored(CODEC, SESSION)
    tree["refresh_token"] = tree["access_token"]
    assert "copy" in str(unread(CODEC, tree))


def test_fields_of_the_same_name_in_different_objects_do_not_open_for_each_other() -> None:
    codec = codec_for(Accounts)
    tree = stored(
        codec, Accounts(main=Account(provider="a", token=SECRET), others=[Account(provider="b", token=OTHER)])
    )
    tree["main"]["token"], tree["others"][0]["token"] = tree["others"][0]["token"], tree["main"]["token"]
    unread(codec, tree)


def test_entries_of_a_list_that_change_places_do_not_open() -> None:
    codec = codec_for(list[Account])
    tree = stored(codec, [Account(provider="a", token=SECRET), Account(provider="b", token=OTHER)])
    unread(codec, tree[::-1])


def test_a_sealed_field_of_a_hash_does_not_open_in_another_field() -> None:
    codec = codec_for(Sealed[str])
    data = codec.encode(SECRET, "session:user:42", RING, name="access")
    assert codec.decode(data, "session:user:42", RING, name="access") == SECRET
    with pytest.raises(Unreadable, match="field refresh"):
        codec.decode(data, "session:user:42", RING, name="refresh")


def test_the_name_of_a_key_cannot_be_mistaken_for_the_path_of_a_field() -> None:
    codec = codec_for(Sealed[str])
    with pytest.raises(Unreadable):
        codec.decode(codec.encode(SECRET, "a", RING, name='b"]\0["c'), 'a\0["b"]', RING, name="c")


@pytest.mark.parametrize("secret", ["a", "ab", "abc"], ids=len)  # base64 has 0, 2 or 4 bits to spare
def test_every_changed_byte_of_a_sealed_text_is_detected(secret: str) -> None:
    ring = KeyRing({"2026a": KEY_A, "2026b": KEY_B})
    codec = codec_for(Sealed[str])
    text = codec.encode(secret, "k", ring).decode()
    for place, byte in enumerate(text):
        for other in string.ascii_letters + string.digits + "-_+/. =\n\0":
            if other != byte:
                with pytest.raises(Unreadable):
                    codec.decode(f"{text[:place]}{other}{text[place + 1 :]}".encode(), "k", ring)


def test_a_sealed_text_that_is_cut_or_made_longer_does_not_open() -> None:
    codec = codec_for(Sealed[str])
    text = codec.encode(SECRET, "k", RING)
    for changed in (*(text[:end] for end in range(len(text))), text + b"A", text + b"=", text + b" "):
        with pytest.raises(Unreadable):
            codec.decode(changed, "k", RING)


def test_a_plain_text_in_place_of_a_sealed_one_is_refused() -> None:
    assert "access_token: is not a sealed text" in str(unread(CODEC, stored(CODEC, SESSION) | {"access_token": SECRET}))


def test_a_text_that_only_looks_sealed_stays_text_in_a_plain_field() -> None:
    session = SESSION.model_copy(update={"uid": "sealed.2026a.AAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAA"})
    assert CODEC.decode(CODEC.encode(session, "sess:1", RING), "sess:1", RING).uid == session.uid


# Keys: rotation, and what is said when one is missing.


def test_values_sealed_with_an_old_key_open_after_rotation() -> None:
    rotated = KeyRing({"2026a": KEY_A, "2026b": KEY_B})
    assert CODEC.decode(CODEC.encode(SESSION, "sess:1", RING), "sess:1", rotated) == SESSION


def test_new_writes_are_sealed_with_the_current_key() -> None:
    rotated = KeyRing({"2026a": KEY_A, "2026b": KEY_B})
    assert KeyRing.sealed_with(stored(CODEC, SESSION, ring=rotated)["access_token"]) == "2026b"


def test_the_current_key_can_be_named() -> None:
    assert KeyRing({"2026a": KEY_A, "2026b": KEY_B}, current="2026a").current == "2026a"


def test_a_key_that_is_not_on_the_ring_is_named() -> None:
    assert "'2026a', which is not on the key ring" in str(
        unread(CODEC, stored(CODEC, SESSION), ring=KeyRing({"2026b": KEY_B}))
    )


def test_another_key_under_the_same_id_does_not_open() -> None:
    unread(CODEC, stored(CODEC, SESSION), ring=KeyRing({"2026a": KEY_B}))


@pytest.mark.parametrize("codec", [CODEC, codec_for(Sealed[str])])
def test_writing_without_a_ring_asks_for_one(codec: Codec[Any]) -> None:
    with pytest.raises(BadValue, match=r"^sess:1: .*seal=KeyRing\("):
        codec.encode(SESSION, "sess:1")


@pytest.mark.parametrize("codec", [CODEC, codec_for(Sealed[str])])
def test_reading_without_a_ring_asks_for_one(codec: Codec[Any]) -> None:
    with pytest.raises(Unreadable, match=r"^sess:1: .*seal=KeyRing\("):
        codec.decode(b"{}", "sess:1")


def test_a_new_key_can_be_pasted_into_the_text_of_a_ring() -> None:
    first, second = KeyRing.new_key(), KeyRing.new_key()
    assert first != second
    assert KeyRing.from_text(f"2026a:{first}, 2026b:{second}").current == "2026b"


def test_a_ring_from_text_opens_values_of_the_same_keys() -> None:
    text = f"2026a:{KeyRing.new_key()}"
    assert KeyRing.from_text(text).open(KeyRing.from_text(text).seal(b"plain", b"about"), b"about") == b"plain"


def test_a_ring_does_not_open_for_another_purpose() -> None:
    with pytest.raises(SealError):
        RING.open(RING.seal(b"plain", b"about"), b"about something else")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026a",
        "2026a:",
        "2026a:c2VjcmV0LWtleQ",
        f"2026a:{'!' * 43}",
        f"2026 a:{'A' * 43}",
        f":{'A' * 43}",
        f"{'x' * 33}:{'A' * 43}",
        f"2026a:{'A' * 43},2026a:{'B' * 42}A",
        f"2026a:{'A' * 43},2026b:{'A' * 43}",
        f"2026a:{'A' * 43},",
    ],
)
def test_a_bad_key_is_refused_in_a_sentence_that_does_not_hold_it(text: str) -> None:
    with pytest.raises(BadDeclaration) as caught:
        KeyRing.from_text(text)
    assert caught.value.finding == "bad-seal-key"
    told = "".join(traceback.format_exception(caught.value, chain=True))
    assert not any(secret in told.splitlines()[-1] for secret in ("c2VjcmV0LWtleQ", "A" * 20, "!" * 20))


@pytest.mark.parametrize("keys", [{}, {"a": b"short"}, {"a": "A" * 32}, {"": KEY_A}, {"a.b": KEY_A}])
def test_a_ring_of_bad_keys_is_refused(keys: Any) -> None:
    with pytest.raises(BadDeclaration) as caught:
        KeyRing(keys)
    assert caught.value.finding == "bad-seal-key"


def test_a_current_key_that_is_not_on_the_ring_is_refused() -> None:
    with pytest.raises(BadDeclaration, match="2026b"):
        KeyRing({"2026a": KEY_A}, current="2026b")


def test_a_ring_shows_its_ids_and_no_key() -> None:
    assert repr(KeyRing({"2026a": KEY_A, "2026b": KEY_B})) == "KeyRing(2026a, 2026b; current: 2026b)"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_ring_cannot_be_copied_or_pickled(copied: Any) -> None:
    with pytest.raises(TypeError, match="key ring"):
        copied(RING)


@pytest.mark.parametrize(
    "text", ["", "sealed", "plain text", "sealed.2026a.x.y", "v1.AAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAA"]
)
def test_a_text_that_is_not_sealed_names_no_key(text: str) -> None:
    assert KeyRing.sealed_with(text) is None


# Where a secret must not show.


def test_the_repr_of_a_model_leaves_sealed_fields_out() -> None:
    assert repr(SESSION) == "Session(uid='42', ver=1)"
    assert str(SESSION) == "uid='42' ver=1"


def test_the_repr_of_a_model_that_is_stored_field_by_field_leaves_sealed_fields_out() -> None:
    class Inner(BaseModel):
        name: str
        token: Sealed[str]

    class Outer(BaseModel):
        uid: str
        token: Sealed[str] | None = Field(default=None, serialization_alias="accessToken")
        inner: Inner

    Hash("account:{id}", Outer, lifetime=never("a test"))
    outer = Outer(uid="42", token=SECRET, inner=Inner(name="a", token=OTHER))
    assert repr(outer) == "Outer(uid='42', inner=Inner(name='a'))"


def test_a_root_model_with_a_sealed_value_cannot_be_a_hash() -> None:
    with pytest.raises(BadDeclaration, match=r"^secret:{id}: .* without a RootModel"):
        Hash("secret:{id}", RootModel[Sealed[str]], lifetime=never("a test"))


def test_the_json_of_a_model_shows_sealed_fields_as_sealed() -> None:
    assert json.loads(SESSION.model_dump_json()) == {
        "uid": "42",
        "access_token": "(sealed)",
        "refresh_token": "(sealed)",
        "ver": 1,
    }


def test_model_dump_gives_the_plain_values() -> None:
    assert SESSION.model_dump()["access_token"] == SECRET


def test_a_model_reads_plain_json_that_is_not_from_a_store() -> None:
    body = json.dumps({"uid": "42", "access_token": SECRET, "refresh_token": OTHER})
    assert Session.model_validate_json(body) == SESSION


def test_the_json_of_a_model_is_not_sealed_again_in_place_of_the_secret() -> None:
    with pytest.raises(BadValue, match="hidden"):
        CODEC.encode(Session.model_validate_json(SESSION.model_dump_json()), "sess:1", RING)


def test_shown_hides_sealed_fields_and_needs_no_ring() -> None:
    assert CODEC.shown(CODEC.encode(SESSION, "sess:1", RING), "sess:1") == {
        "uid": "42",
        "access_token": "(sealed)",
        "refresh_token": "(sealed)",
        "ver": 1,
    }


@pytest.mark.parametrize("secret", [SECRET, f"sealed.{SECRET}"])
def test_shown_does_not_show_a_secret_that_was_stored_in_plain(secret: str) -> None:
    picture = CODEC.shown(json.dumps({"uid": "42", "access_token": secret}).encode(), "sess:1")
    assert picture == {"unreadable": "the value is not a valid Session: access_token: is not a sealed text"}


def test_shown_reports_other_problems_of_a_sealed_record() -> None:
    tree = stored(CODEC, SESSION) | {"ver": "1"}
    assert list(CODEC.shown(json.dumps(tree).encode(), "sess:1")) == ["unreadable"]


def test_shown_does_not_ask_a_validator_about_a_value_it_cannot_see() -> None:
    class Strict(BaseModel):
        token: Sealed[str]

        @field_validator("token")
        @classmethod
        def starts_right(cls, value: str) -> str:
            if not value.startswith("ya29."):
                raise ValueError(value)
            return value

    codec = codec_for(Strict)
    assert codec.shown(codec.encode(Strict(token=SECRET), "k", RING), "k") == {"token": "(sealed)"}


def test_shown_hides_a_value_that_is_sealed_as_a_whole() -> None:
    codec = codec_for(Sealed[str])
    assert codec.shown(codec.encode(SECRET, "k", RING), "k") == "(sealed)"
    assert codec.shown(SECRET.encode(), "k") == {"unreadable": "the value is not a sealed text"}


def test_a_validator_that_quotes_the_secret_is_not_quoted() -> None:
    class Quoting(BaseModel):
        token: Sealed[str]

        @field_validator("token")
        @classmethod
        def refuse(cls, value: str, info: ValidationInfo) -> str:
            if info.mode == "json":
                raise ValueError(f"{value} is bad")
            return value

    codec = codec_for(Quoting)
    assert "token: was refused" in str(unread(codec, stored(codec, Quoting(token=SECRET))))


def test_a_sealed_value_of_a_wrong_type_is_refused_without_showing_it() -> None:
    session = SESSION.model_copy(update={"access_token": [SECRET]})
    with pytest.raises(BadValue) as caught:
        CODEC.encode(session, "sess:1", RING)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "sess:1" in str(caught.value)
    assert "access_token" in str(caught.value)


def test_a_number_that_json_cannot_represent_is_not_sealed() -> None:
    class Weight(BaseModel):
        weight: Sealed[float]

    with pytest.raises(BadValue, match="weight"):
        codec_for(Weight).encode(Weight(weight=float("nan")), "k", RING)


def test_a_sealed_field_where_none_is_declared_is_refused_and_not_lost() -> None:
    class Anything(BaseModel):
        value: Any

    with pytest.raises(BadValue, match="value"):
        codec_for(Anything).encode(Anything(value=SESSION), "k")


# Declarations.


def test_a_codec_knows_whether_anything_is_sealed() -> None:
    assert [codec_for(type_).sealed for type_ in (Session, Accounts, list[Account], Sealed[str], str)] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_the_key_document_marks_sealed_fields() -> None:
    assert CODEC.describe() == "JSON { uid, access_token (sealed), refresh_token (sealed) | null, ver }"


def test_the_json_schema_of_the_store_has_a_sealed_text_and_that_of_a_request_the_plain_type() -> None:
    assert CODEC.json_schema()["properties"]["access_token"]["format"] == "sealed"
    assert "format" not in Session.model_json_schema()["properties"]["access_token"]


def refused(type_: Any) -> str:
    with pytest.raises(BadDeclaration) as caught:
        codec_for(type_, where="Keys.family")
    assert caught.value.finding == "bad-value-type"
    assert str(caught.value).startswith("Keys.family: ")
    return str(caught.value)


def test_one_choice_of_a_union_cannot_be_sealed() -> None:
    class Either(BaseModel):
        value: Sealed[str] | int

    assert "Sealed[str | int]" in refused(Either)


def test_a_key_of_a_dict_cannot_be_sealed() -> None:
    assert "keys of a dict" in refused(dict[Sealed[str], int])


def test_a_sealed_value_cannot_hold_a_sealed_field() -> None:
    assert "either the field or the whole" in refused(Sealed[Session])


def test_a_dataclass_must_not_show_sealed_fields() -> None:
    @dataclasses.dataclass
    class Shown:
        token: Sealed[str]

    @dataclasses.dataclass
    class Hidden:
        token: Sealed[str] = dataclasses.field(repr=False)

    assert "field(repr=False)" in refused(Shown)
    assert codec_for(Hidden).sealed


def test_a_root_model_must_not_show_its_sealed_value() -> None:
    assert "RootModel" in refused(RootModel[Sealed[str]])


# Sealed fields and versions.


class Renamed(BaseModel):
    token: Sealed[str]
    ver: int = 2


def test_an_upgrade_may_move_a_sealed_field() -> None:
    class Old(BaseModel):
        accessToken: Sealed[str]  # noqa: N815 (as a JavaScript program named it)

    data = codec_for(Old).encode(Old(accessToken=SECRET), "k", RING)
    codec = codec_for(Renamed, versions=Versions("ver", 2, {1: lambda old: {"token": old["accessToken"]}}))
    assert codec.decode(data, "k", RING) == Renamed(token=SECRET)


def test_an_upgrade_may_start_to_seal_a_plain_value() -> None:
    codec = codec_for(Renamed, versions=Versions("ver", 2, {1: lambda old: {"token": unsealed(old["token"])}}))
    data = json.dumps({"token": SECRET, "ver": 1}).encode()
    assert codec.decode(data, "k", RING) == Renamed(token=SECRET)
    assert codec.shown(data, "k") == {"token": "(sealed)", "ver": 2}


def test_an_upgrade_does_not_take_a_plain_value_for_a_sealed_one() -> None:
    codec = codec_for(Renamed, versions=Versions("ver", 2, {1: lambda old: old}))
    unread(codec, {"token": SECRET, "ver": 1}, key="k")
