"""Reading the replies of MySQL and MariaDB (text protocol), in a third of the time that PyMySQL takes.

PyMySQL parses each column definition into an object, and reads each packet with two calls. Here the socket is read in
large pieces, and of a column only its type and its character set matter.
See https://mariadb.com/kb/en/result-set-packets/.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pymysql
from pymysql.constants import COMMAND, FIELD_TYPE

from keystead.stores.database.database_session import Result

_PIECE: Final = 1 << 16
_LONGEST_PACKET: Final = 0xFF_FFFF  # the rest of a longer one follows in the next
_BINARY: Final = 63  # the character set of bytes
_MORE_RESULTS: Final = 8
_QUERY: Final = b"\0\x03"  # the number of the packet, and COM_QUERY
_ERROR, _END, _NULL = 0xFF, 0xFE, 0xFB

_NUMBERS: Final[dict[int, Callable[[bytes], Any]]] = {
    **dict.fromkeys(
        (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.INT24, FIELD_TYPE.YEAR),
        int,
    ),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), lambda text: Decimal(text.decode())),
}


class _Incomplete(Exception):
    """More of the reply has to arrive."""


class MysqlReplies:
    """The replies on one connection of PyMySQL, which still connects, sends and closes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._data = b""
        self._at = 0
        self._is_waiting = True  # for what is missing; False: `receive` is called again
        self._needed = 0  # bytes, before it is worth parsing them

    def ask(self, text: str, count: int) -> list[Result]:
        """Send a text of `count` statements. Raises `pymysql.Error` and OSError."""
        connection = self._connection
        connection._execute_command(COMMAND.COM_QUERY, text)
        connection._sock.settimeout(connection._read_timeout)
        self._data, self._at, self._is_waiting = b"", 0, True
        results: list[Result] = []
        while True:
            result, has_more = self._result()
            results.append(result)
            if not has_more:
                break
        if len(results) != count:
            raise pymysql.OperationalError(2014, "the server returned fewer results than statements")
        return results

    def begin(self, text: str) -> None:
        """Send one short statement, without waiting. Raises OSError."""
        sock, packet = self._connection._sock, text.encode()
        packet = (len(packet) + 1).to_bytes(3, "little") + _QUERY + packet
        sock.setblocking(False)
        if sock.send(packet) < len(packet):
            raise OSError("the socket takes no more data")
        self._data, self._at, self._needed, self._is_waiting = b"", 0, 1, False

    def receive(self) -> Result | None:
        """The result of this statement; None: it is not complete yet. Raises `pymysql.Error` and OSError."""
        try:
            piece = self._connection._sock.recv(max(_PIECE, min(self._needed - len(self._data), 1 << 20)))
        except BlockingIOError:
            return None
        if not piece:
            raise pymysql.OperationalError(2013, "the server closed the connection")
        self._data += piece
        if len(self._data) < self._needed:
            return None
        self._at = 0
        try:
            result, _ = self._result()
        except _Incomplete:
            return None
        return result

    def _result(self) -> tuple[Result, bool]:
        """The next result, and whether another one follows."""
        packet = self._packet()
        first = packet[0]
        if first == 0:
            changed, at = _length(packet, 1)
            _, at = _length(packet, at)
            return Result([], changed), bool(packet[at] & _MORE_RESULTS)
        if first == _ERROR:
            pymysql.err.raise_mysql_exception(packet)
        columns, _ = _length(packet, 0)
        readers = [_reader(self._packet()) for _ in range(columns)]
        self._packet()  # the end of the columns
        rows: list[tuple[Any, ...]] = []
        while True:
            packet = self._packet()
            first = packet[0]
            if first == _END and len(packet) < 9:
                return Result(rows, len(rows)), bool(packet[3] & _MORE_RESULTS)
            if first == _ERROR:
                pymysql.err.raise_mysql_exception(packet)
            rows.append(_row(packet, readers))

    def _packet(self) -> bytes:
        data, begin = self._data, self._at + 4
        if begin <= len(data):
            length = data[begin - 4] | data[begin - 3] << 8 | data[begin - 2] << 16
            end = begin + length
            if end <= len(data) and length < _LONGEST_PACKET:  # as most are
                self._at = end
                return data[begin:end]
        header = self._take(4)
        length = header[0] | header[1] << 8 | header[2] << 16
        packet = self._take(length)
        while length == _LONGEST_PACKET:
            header = self._take(4)
            length = header[0] | header[1] << 8 | header[2] << 16
            packet += self._take(length)
        return packet

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            self._receive(count)
            end = count
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _receive(self, count: int) -> None:
        """Receive until `count` bytes are there."""
        if not self._is_waiting:
            self._needed = self._at + count
            raise _Incomplete
        pieces = [self._data[self._at :]]
        missing = count - len(pieces[0])
        while missing > 0:
            piece = self._connection._sock.recv(max(_PIECE, min(missing, 1 << 20)))
            if not piece:
                raise pymysql.OperationalError(2013, "the server closed the connection")
            pieces.append(piece)
            missing -= len(piece)
        self._data, self._at = b"".join(pieces), 0


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer, and where it ends."""
    first = data[at]
    if first < _NULL:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _reader(column: bytes) -> Callable[[bytes], Any] | None:
    """What converts the values of a column; None: bytes stay bytes. The definition ends with fields of fixed length."""
    number = _NUMBERS.get(column[-6])
    if number is not None:
        return number
    return None if column[-12] == _BINARY and column[-11] == 0 else bytes.decode


def _row(packet: bytes, readers: list[Callable[[bytes], Any] | None]) -> tuple[Any, ...]:
    values: list[Any] = []
    at = 0
    for read in readers:
        length = packet[at]
        at += 1
        if length == _NULL:
            values.append(None)
            continue
        if length > _NULL:
            length, at = _length(packet, at - 1)
        value = packet[at : at + length]
        at += length
        values.append(value if read is None else read(value))
    return tuple(values)
