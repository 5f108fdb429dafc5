"""`keystead gateway`: tokens by command line, and the gateway as its own server and as a kit, end to end."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forking
from tests.cli.program import Program, output
from tests.serving import Keystead, answering, environment, free_port, keystead_serving

CART = '''
from keystead import Keyspace, Value, after

class ShopKeys(Keyspace):
    """A shop."""

    cart = Value("cart:{uid:int}", str, lifetime=after("1h"), doc="a cart")
'''


def create(program: Program, *flags: str) -> dict[str, str]:
    found: Any = output(program.keystead("gateway", "token", "create", "a test", "--json", *flags))
    return dict(found)


def send(url: str, token: str, *command: Any) -> Any:
    return httpx2.post(url, json=command, headers={"authorization": f"Bearer {token}"}).json()


def test_a_token_is_created_listed_without_its_secret_and_revoked(program: Program) -> None:
    assert program.keystead("gateway", "token", "list").stdout.startswith("there are no tokens; ")
    created = program.keystead("gateway", "token", "create", "web shop", "--access", "write", "--keys", "cart:*")
    token = created.stdout.strip()
    token_id = token.split("_")[1]
    assert f"revoke {token_id}" in created.stderr
    listed = program.keystead("gateway", "token", "list")
    assert listed.stdout.startswith(f"{token_id}  write (cart:*)  since ")
    assert listed.stdout.endswith("UTC  web shop\n")
    everything: Any = output(program.keystead("gateway", "token", "list", "--json"))
    [told] = everything
    assert (told["id"], told["access"], told["keys"], told["name"]) == (token_id, "write", ["cart:*"], "web shop")
    assert token.split("_", 2)[2] not in listed.stdout + json.dumps(told)
    assert "digest" not in told
    assert program.keystead("gateway", "token", "revoke", token).stdout == "revoked\n"
    again = program.keystead("gateway", "token", "revoke", token_id)
    assert (again.returncode, again.stdout.startswith("there is no such token; ")) == (1, True)
    history = program.keystead("audit", "gateway").stdout
    assert "token-created" in history
    assert "token-revoked" in history


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--access", "root"), "--access takes read, write, scripts, admin, not 'root'"),
        (("--only", "uid"), "--only takes the name of a placeholder and its value"),
        (("--access", "admin", "--keys", "a*"), "a token with access admin cannot be limited"),
        (("--keyspace", "myapp.keys:AppKeys", "--family", "nope"), "there is no family 'nope'"),
        (("--family", "AppKeys.session"), "--family and --only need the key document: --keyspace"),
        (("--only", "uid=42"), "--family and --only need the key document: --keyspace"),
        (("-k", "myapp.keys", "--only", "udi=42"), "no family has the placeholder 'udi'"),
        (("-k", "myapp.keys", "--family", "lock", "--only", "uid=42"), "AppKeys.lock has no placeholder 'uid'"),
        (("-k", "myapp.keys", "--only", "day=42"), "'42' cannot be the value of {day}"),
        (("--store", "gatewy=sqlite:///other.db"), "no family has the role 'gatewy'"),
    ],
)
def test_an_impossible_token_is_refused_in_one_line(program: Program, flags: tuple[str, ...], said: str) -> None:
    refused = program.keystead("gateway", "token", "create", "x", *flags)
    assert refused.returncode in (1, 2)
    assert said in refused.stderr
    assert refused.stdout == ""
    assert program.keystead("gateway", "token", "list").stdout.startswith("there are no tokens; ")


def test_the_mode_needs_a_key_document(program: Program) -> None:
    refused = program.keystead("gateway", "--mode", "enforce")
    assert refused.returncode == 2
    assert "--mode needs a key document" in refused.stderr


def test_the_first_commands_of_the_documentation_work_as_they_are_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    lines = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].splitlines()
    create_line, run_line = (shlex.split(line, comments=True)[1:] for line in lines)
    port, said = free_port(), tmp_path / "output.txt"
    created = forking.run(create_line, tmp_path, environment())
    assert "It is for gateways whose store is sqlite:///app.db" in created.stderr
    with said.open("w") as stream:
        process = forking.start(run_line, tmp_path, environment({"KEYSTEAD_PORT": str(port)}), stream, stream)
    with answering(Keystead(process, port, said)) as running:
        assert send(running.url, created.stdout.strip(), "SET", "a", "b") == {"result": "OK"}


def test_the_gateway_serves_a_file_and_enforces_a_key_document(program: Program) -> None:
    (program.folder / "shop.py").write_text(CART)
    full = create(program, "--access", "write")["token"]
    own = create(program, "--access", "write", "-k", "shop:ShopKeys", "--family", "cart", "--only", "uid=42")["token"]
    reader = create(program)["token"]
    port, said = free_port(), program.folder / "output.txt"
    asked = ("gateway", "shop:ShopKeys", "--mode", "enforce", "--store", program.url, "--port", str(port))
    with said.open("w") as stream:
        process = forking.start(asked, program.folder, environment(), stream, stream)
    with answering(Keystead(process, port, said)) as running:
        assert send(running.url, full, "SET", "cart:1", '"tea"', "EX", 3600) == {"result": "OK"}
        assert send(running.url, full, "SET", "stray", "x")["error"].startswith("WRITEREFUSED unknown-key: ")
        assert send(running.url, own, "SET", "cart:42", '"tea"', "EX", 3600) == {"result": "OK"}
        assert send(running.url, own, "GET", "cart:1") == {"error": "NOPERM No permissions to access a key"}
        assert send(running.url, reader, "GET", "cart:42") == {"result": '"tea"'}
        assert "NOPERM" in send(running.url, reader, "DEL", "cart:42")["error"]
        batch = httpx2.post(
            f"{running.url}/pipeline", json=[["EXISTS", "cart:1"]], headers={"authorization": f"Bearer {reader}"}
        )
        assert batch.json() == [{"result": 1}]
        assert httpx2.get(f"{running.url}/get/cart:1?_token={reader}").json() == {"result": '"tea"'}
        assert httpx2.get(f"{running.url}/healthz").json()["status"] == "ok"
        assert 'event="unknown-key"' in httpx2.get(f"{running.url}/metrics").text
        assert running.stop() == 0
        for token in (full, own, reader):
            assert token.split("_", 2)[2] not in running.said
        assert "unknown-key" in running.said


def test_a_body_that_is_too_large_is_refused_in_the_form_of_upstash(tmp_path: Path) -> None:
    program = Program(tmp_path)
    token = create(program, "--access", "write")["token"]
    settings = {"KEYSTEAD_MAX_BODY": "2kB", "KEYSTEAD_GATEWAY__MAX_BODY": "5kB"}
    with keystead_serving(tmp_path, program.url, "--kits", "keystead.gateway:ROOT_KIT", **settings) as running:

        def refusal(path: str, content: Any, token: str = token) -> tuple[int, str]:
            sent = {"authorization": f"Bearer {token}"}
            answer = httpx2.post(running.url + path, content=content, headers=sent)
            return answer.status_code, answer.json()["error"]

        large = b"x" * 6000
        for path in ("/", "/pipeline", "/multi-exec"):
            for body in (large, iter([large[:3000], large[3000:]])):  # with its length stated, and in chunks
                status, text = refusal(path, body)
                assert (status, text.split(" bytes")[0]) == (413, "ERR max request size exceeded. Limit: 5000")
            assert refusal(path, large, "wrong")[0] == 401
        assert refusal("/set/a", iter([large]))[1].startswith("ERR max request size exceeded; ")
        assert "Traceback" not in running.said


def test_the_gateway_is_a_kit_of_the_server_below_its_own_path(tmp_path: Path) -> None:
    program = Program(tmp_path)
    token = create(program, "--access", "write")["token"]
    with keystead_serving(tmp_path, program.url, "--kits", "widgets,keystead.gateway:KIT") as running:
        url = f"{running.url}/gateway"
        assert send(url, token, "SET", "a", "b") == {"result": "OK"}
        assert send(f"{url}/", token, "GET", "a") == {"result": "b"}
        headers = {"authorization": f"Bearer {token}"}
        assert httpx2.get(f"{url}/mget/a/none", headers=headers).json() == {"result": ["b", None]}
        batch = httpx2.post(f"{url}/multi-exec", json=[["INCR", "n"], ["INCR", "n"]], headers=headers)
        assert batch.json() == [{"result": 1}, {"result": 2}]
        with httpx2.stream("POST", f"{url}/subscribe/news", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: subscribe,news,1"
            assert send(url, token, "PUBLISH", "news", "hello") == {"result": 1}
            assert [next(lines), next(lines)] == ["", "data: message,news,hello"]
            assert running.stop() == 0  # an open stream does not delay it
