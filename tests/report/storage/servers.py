"""A store of objects on this machine, and a proxy in front of it that counts requests and makes faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.parser import BytesParser
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

T = TypeVar("T")
ID, SECRET = "AKIAJOBREPORTTESTKEY", "secretOfTheTest/0123456789abcdefghijklmno"


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in a thread of its own: that of the tests has a loop that runs if a browser was open in it."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """The address of a server of S3."""
    port = free_port()
    with process([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def process(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server of another kind."""
    known = {**os.environ, **environment}
    server = subprocess.Popen(command, env=known, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield
    finally:
        server.kill()
        server.wait()


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not answer")


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    method: str
    #: Bucket and key.
    path: str
    query: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    #: How many there were before.
    number: int = 0

    @property
    def kind(self) -> str:
        return "LIST" if self.method == "GET" and "list-type" in self.query else self.method


@dataclass(frozen=True)
class Fault:
    """What the proxy does instead of passing an answer on."""

    status: int = 0
    code: str = ""
    #: Bytes of the answer's body after which the line is cut.
    cut: int | None = None
    #: The answer's length is wrong by as many bytes.
    longer: int = 0
    #: Seconds before each byte of the body.
    slow: float = 0
    #: Something is done before the request is passed on.
    before: Callable[[], object] | None = None
    #: And after it, before the answer.
    after: Callable[[], object] | None = None
    #: The answer does not come.
    lost: bool = False


class Proxy:
    """Passes requests on, unless ``fault`` says otherwise; keeps what was asked for."""

    def __init__(self, server: str) -> None:
        self.server, self._server = server, urlsplit(server)
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda _: None
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def count(self, kind: str) -> int:
        return sum(one.kind == kind for one in self.requests)

    def reset(self) -> None:
        self.requests.clear()
        self.fault = lambda _: None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        method, target, _ = first.decode().split(" ")
        headers = {
            name.lower(): text for name, text in BytesParser().parsebytes(rest, headersonly=True).items()
        }
        if headers.get("expect"):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        asked = Request(method, unquote(parts.path.lstrip("/")), parts.query, headers, len(self.requests))
        self.requests.append(asked)
        fault = self.fault(asked) or Fault()
        if fault.before:
            fault.before()
        if fault.status:
            text = (
                f"<Error><Code>{fault.code}</Code><Message>{ID} {SECRET} Signature</Message></Error>".encode()
            )
            line = f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n"
            writer.write(f"{line}Connection: close\r\n\r\n".encode() + (b"" if method == "HEAD" else text))
            await writer.drain()
            return
        loop = asyncio.get_running_loop()
        status, known, data = await loop.run_in_executor(None, self._answer, method, target, headers, body)
        if fault.after:
            fault.after()
        if fault.lost:
            return
        length = (
            known.pop("content-length", str(len(data))) if method == "HEAD" else str(len(data) + fault.longer)
        )
        known = {
            name: text
            for name, text in known.items()
            if name not in ("connection", "transfer-encoding", "content-length")
        }
        lines = [f"HTTP/1.1 {status} Any", *(f"{name}: {text}" for name, text in known.items())]
        lines += [f"Content-Length: {length}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        if fault.slow:
            for i in range(len(data)):
                await asyncio.sleep(fault.slow)
                writer.write(data[i : i + 1])
                await writer.drain()
        else:
            writer.write(data if fault.cut is None else data[: fault.cut])
        await writer.drain()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        line = HTTPConnection(str(self._server.hostname), self._server.port, timeout=60)
        try:
            line.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, text in headers.items():
                if name not in ("connection", "expect"):
                    line.putheader(name, text)
            line.endheaders(body)
            found = line.getresponse()
            return found.status, {name.lower(): text for name, text in found.getheaders()}, found.read()
        finally:
            line.close()


class Bucket:
    """A bucket, by plain requests: another way than that of the program."""

    def __init__(self, server: str, name: str) -> None:
        self._url, self.name = f"{server}/{name}", name
        self._ask("PUT", "")

    def _ask(self, method: str, path: str, data: bytes | None = None, **headers: str) -> bytes:
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        request.add_header("Content-Type", "application/octet-stream")
        request.add_header(
            "Authorization", f"AWS4-HMAC-SHA256 Credential={ID}/20260101/us-east-1/s3/aws4_request"
        )
        with urllib.request.urlopen(request, timeout=60) as found:
            return bytes(found.read())

    def put(self, key: str, data: bytes) -> None:

        self._ask("PUT", f"/{quote(key)}", data)

    def delete(self, key: str) -> None:
        self._ask("DELETE", f"/{quote(key)}")

    def get(self, key: str) -> bytes | None:

        try:
            return self._ask("GET", f"/{quote(key)}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def listed(self, prefix: str = "") -> list[str]:

        text = self._ask("GET", f"?list-type=2&prefix={quote(prefix, safe='')}&max-keys=1000").decode()
        return [unescape(one) for one in re.findall(r"<Key>(.*?)</Key>", text)]

    def uploads(self) -> str:
        return self._ask("GET", "?uploads").decode()

    def put_folder(self, folder: Path, prefix: str) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())
