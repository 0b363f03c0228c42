"""Buckets: listing, reading, and writing objects, whatever the backend; what it raises becomes an ``Answer``.

All is done within one ``asyncio.run``, so no thread and no loop is left when a process is forked. No text of a backend is
repeated: it may hold names of hosts, accounts, and keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import random
import re
import shlex
import warnings
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from .urls import is_open_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from .urls import Url

#: Seconds between the tries of a request, about.
WAITS_S = [0.5, 1.5, 4.0, 8.0]
CONNECT_S, READ_S = 10, 60
_CHUNK = 1 << 18
_COPY = {
    "s3": "aws s3 sync {} my-job",
    "gs": "gcloud storage rsync -r {} my-job",
    "az": "az storage blob download-batch -d my-job -s {} --pattern {}",
}
#: Codes that are repeated; others may hold anything.
_CODES = frozenset(
    re.findall(
        r"\w+",
        """
    AccessDenied AllAccessDisabled AuthorizationHeaderMalformed BlobArchived ContainerNotFound ExpiredToken InternalError
    InvalidAccessKeyId InvalidObjectState NoSuchBucket NoSuchKey PermanentRedirect RequestTimeTooSkewed ServerBusy
    ServiceUnavailable SlowDown TooManyRequests
    """,
    )
)
#: Errors of credentials that are not there, by their classes.
_NO_CREDENTIALS = re.compile(
    r"(?:No|Partial)Credentials.*|.*(?:Token|Credential)(?:Retrieval|Load|Unavailable|Expired)\w*Error"
    r"|ProfileNotFound|ConfigNotFound|DefaultCredentialsError|RefreshError|ClientAuthenticationError|UnauthorizedSSO.*"
)
#: Errors that another try may not meet.
_NO_ANSWER = re.compile(
    r".*(?:Timeout|Connection|Connect|Disconnected|Payload|Incomplete\w*|Streaming|Request|HTTPClient|ClientOS)\w*Error|\w*Timeout"
)


class Answer(Exception):  # noqa: N818 - of storage, in the words of this module
    """What storage answered instead of what was asked for; 0 is no answer, 401 also that there are no credentials."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason

    @property
    def may_pass(self) -> bool:
        """Whether another try may succeed."""
        return self.status in (0, 408, 429) or (self.status >= 500 and self.status != 501)


class StorageError(Exception):
    """Storage cannot be used; a sentence for the user."""


class Object(NamedTuple):
    """An object, as it is listed."""

    key: str
    size: int
    #: Changes with the content.
    tag: str


class Got(NamedTuple):
    """An object, as it is read."""

    size: int
    tag: str
    #: Seconds since it was written, by the clock of the server.
    age_s: float


def answer_to(error: BaseException) -> Answer:
    """An error of any backend, in our words."""
    if isinstance(error, Answer):
        return error
    if isinstance(error, asyncio.TimeoutError):
        return Answer(0, "no answer")
    response, name = getattr(error, "response", None), type(error).__name__
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = response.get("Error", {}).get("Code", "")
    else:
        status = getattr(error, "status_code", None) or getattr(error, "status", None) or 0
        code = getattr(error, "error_code", "")
    if not status and _NO_CREDENTIALS.fullmatch(name):
        return Answer(401, "no credentials")
    if status:
        known = f" ({code})" if code in _CODES else ""
        if code in ("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"):
            status = 412
        return Answer(501 if code == "NotImplemented" else status, f"HTTP {status}{known}")
    if isinstance(error, OSError) and (
        error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)
    ):  # of this machine
        raise error
    if isinstance(error, OSError) or _NO_ANSWER.fullmatch(name):
        return Answer(0, f"no answer: {name}")
    return Answer(-1, name)


async def tried(call: Callable[[], Awaitable[Any]]) -> Any:
    """What a request gives, tried again where that may help. Raises ``Answer``."""
    for wait in (*WAITS_S, None):
        try:
            return await call()
        except Exception as error:  # noqa: BLE001 - of three libraries
            answer = answer_to(error)
        if wait is None or not answer.may_pass:
            raise answer from None
        await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311 - so that not all come back at once
    raise AssertionError


class Store:
    """A bucket."""

    async def pages(self, prefix: str) -> AsyncIterator[list[Object]]:
        """All objects whose keys begin so, a page at a time."""
        token = ""
        while True:
            found, token = await tried(lambda: self._page(prefix, token))  # noqa: B023 - used at once
            yield found
            if not token:
                return

    async def find(self, key: str) -> Object | None:
        """The object of this key; None if there is none."""
        async for page in self.pages(key):
            return next((one for one in page if one.key == key), None)
        return None

    async def get(
        self,
        key: str,
        file: str,
        *,
        tag: str = "",
        size: int | None = None,
        most: int = 0,
        advance: Callable[[int], object] = lambda _: None,
    ) -> Got:
        """Write an object into a file, or its first ``most`` bytes: if its tag and size are still these.

        ``advance`` is told bytes as they come; fewer than none if they come again.
        """

        async def once() -> Got:
            done = 0
            try:
                async with self._reading(key, tag, most) as (got, chunks):
                    whole = got.size if size is None else size
                    wanted = min(whole, most or whole)
                    with open(file, "wb") as sink:  # noqa: PTH123 - not a Path
                        async for chunk in chunks:
                            sink.write(chunk[: wanted - done] if most else chunk)
                            done += len(chunk)
                            advance(len(chunk))
                            # Not every server knows ranges, or sends as much as it has listed.
                            if done > wanted or (most and done == wanted):
                                break
                    if done != wanted if not most else done < wanted:
                        raise Answer(0, "a part is missing")
                    return got
            except BaseException:
                advance(-done)
                raise

        got: Got = await tried(once)
        return got

    async def put(self, key: str, data: bytes, kind: str, tag: str | None = None) -> str:
        """Write an object, and return its tag: over any other; or if there is none, with an empty ``tag``; or over this."""
        made: str = await tried(lambda: self._put(key, data, kind, tag))
        return made

    async def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        try:
            await tried(lambda: self._delete(key))
        except Answer as answer:
            if answer.status != 404:
                raise

    # For each backend; requests are made once, and may raise anything.

    #: Where requests go to.
    endpoint = ""

    async def _page(self, prefix: str, token: str) -> tuple[list[Object], str]:
        raise NotImplementedError

    def _reading(
        self, key: str, tag: str, most: int
    ) -> contextlib.AbstractAsyncContextManager[tuple[Got, AsyncIterator[bytes]]]:
        raise NotImplementedError

    async def _put(self, key: str, data: bytes, kind: str, tag: str | None) -> str:
        raise NotImplementedError

    async def _delete(self, key: str) -> None:
        raise NotImplementedError


class _S3(Store):
    def __init__(self, bucket: str, client: Any, *, pays: bool) -> None:
        self._client, self.endpoint = client, client.meta.endpoint_url
        self._known = {"Bucket": bucket, **({"RequestPayer": "requester"} if pays else {})}

    async def _page(self, prefix: str, token: str) -> tuple[list[Object], str]:
        more = {"ContinuationToken": token} if token else {}
        page = await self._client.list_objects_v2(Prefix=prefix, **more, **self._known)
        found = [Object(one["Key"], one["Size"], one.get("ETag", "")) for one in page.get("Contents", ())]
        return found, page.get("NextContinuationToken", "") if page.get("IsTruncated") else ""

    @contextlib.asynccontextmanager
    async def _reading(
        self, key: str, tag: str, most: int
    ) -> AsyncIterator[tuple[Got, AsyncIterator[bytes]]]:
        chosen = {**({"IfMatch": tag} if tag else {}), **({"Range": f"bytes=0-{most - 1}"} if most else {})}
        found = await self._client.get_object(Key=key, **chosen, **self._known)
        headers = found["ResponseMetadata"]["HTTPHeaders"]
        async with found["Body"] as body:
            got = Got(found["ContentLength"], found.get("ETag", ""), _age(headers))
            yield got, body.iter_chunks(_CHUNK)

    async def _put(self, key: str, data: bytes, kind: str, tag: str | None) -> str:
        condition = {} if tag is None else {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        made = await self._client.put_object(
            Key=key, Body=data, ContentType=kind, CacheControl="no-cache", **condition, **self._known
        )
        return str(made.get("ETag", ""))

    async def _delete(self, key: str) -> None:
        await self._client.delete_object(Key=key, **self._known)


class _GS(Store):
    def __init__(self, bucket: str, system: Any, session: Any, *, pays: bool) -> None:
        self._system, self._session, self.endpoint = system, session, system._location
        self._objects = f"storage/v1/b/{quote(bucket, safe='')}/o"
        self._known = {"userProject": system.project} if pays and system.project else {}

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, path: str, known: Mapping[str, Any], **more: Any
    ) -> AsyncIterator[Any]:
        headers = {"Accept-Encoding": "gzip", **more.pop("headers", {})}
        self._system.credentials.apply(headers)
        url = f"{self.endpoint}/{path}"
        async with self._session.request(
            method, url, params={**known, **self._known}, headers=headers, allow_redirects=False, **more
        ) as found:
            if found.status >= 300:
                raise Answer(found.status, f"HTTP {found.status}")
            yield found

    async def _page(self, prefix: str, token: str) -> tuple[list[Object], str]:
        known = {"prefix": prefix, "maxResults": 1000, "fields": "nextPageToken,items(name,size,generation)"}
        async with self._asked(
            "GET", self._objects, {**known, **({"pageToken": token} if token else {})}
        ) as found:
            page = json.loads(await found.read())
        items = page.get("items", ())
        return [
            Object(one["name"], int(one["size"]), str(one.get("generation", ""))) for one in items
        ], page.get("nextPageToken", "")

    @contextlib.asynccontextmanager
    async def _reading(
        self, key: str, tag: str, most: int
    ) -> AsyncIterator[tuple[Got, AsyncIterator[bytes]]]:
        known = {"alt": "media", **({"ifGenerationMatch": tag} if tag else {})}
        headers = {"Range": f"bytes=0-{most - 1}"} if most else {}
        async with self._asked(
            "GET", f"{self._objects}/{quote(key, safe='')}", known, headers=headers
        ) as found:
            size, tag = int(found.headers["Content-Length"]), found.headers.get("x-goog-generation", "")
            yield Got(size, tag, _age(found.headers)), found.content.iter_chunked(_CHUNK)

    async def _put(self, key: str, data: bytes, kind: str, tag: str | None) -> str:
        known = {"uploadType": "multipart", **({} if tag is None else {"ifGenerationMatch": tag or "0"})}
        about = {"name": key, "contentType": kind, "cacheControl": "no-cache"}
        line = os.urandom(16).hex()
        head = f"--{line}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(about)}\r\n"
        head += f"--{line}\r\nContent-Type: {kind}\r\n\r\n"
        body = head.encode() + data + f"\r\n--{line}--\r\n".encode()
        headers = {"Content-Type": f'multipart/related; boundary="{line}"'}
        async with self._asked("POST", f"upload/{self._objects}", known, headers=headers, data=body) as found:
            return str(json.loads(await found.read()).get("generation", ""))

    async def _delete(self, key: str) -> None:
        async with self._asked("DELETE", f"{self._objects}/{quote(key, safe='')}", {}):
            pass


class _Azure(Store):
    def __init__(self, container: str, service: Any) -> None:
        self._container, self.endpoint = service.get_container_client(container), service.url

    async def _page(self, prefix: str, token: str) -> tuple[list[Object], str]:
        pages = self._container.list_blobs(name_starts_with=prefix or None, results_per_page=1000)
        pages = pages.by_page(token or None)
        # A folder of a hierarchical namespace is listed as a blob of no size.
        found = [Object(one.name, one.size, one.etag or "") async for one in await anext(pages)]
        return found, pages.continuation_token or ""

    @contextlib.asynccontextmanager
    async def _reading(
        self, key: str, tag: str, most: int
    ) -> AsyncIterator[tuple[Got, AsyncIterator[bytes]]]:
        headers: dict[str, str] = {}
        known: dict[str, Any] = {"offset": 0, "length": most} if most else {}
        known["raw_response_hook"] = lambda one: headers.update(one.http_response.headers)
        # The bytes as they are stored: readers know gzip.
        known["decompress"] = False
        found = await self._container.get_blob_client(key).download_blob(**known, **_unmodified(tag))
        yield Got(found.size, found.properties.etag, _age(headers)), found.chunks()

    async def _put(self, key: str, data: bytes, kind: str, tag: str | None) -> str:
        from azure.storage.blob import ContentSettings  # noqa: PLC0415 - the backend is there

        settings = ContentSettings(content_type=kind, cache_control="no-cache")
        blob = self._container.get_blob_client(key)
        made = await blob.upload_blob(
            data, overwrite=tag != "", content_settings=settings, **_unmodified(tag or "")
        )
        return str(made["etag"])

    async def _delete(self, key: str) -> None:
        await self._container.delete_blob(key)


def _unmodified(tag: str) -> dict[str, Any]:
    from azure.core import MatchConditions  # noqa: PLC0415 - the backend is there

    return {"etag": tag, "match_condition": MatchConditions.IfNotModified} if tag else {}


def _age(headers: Mapping[str, str]) -> float:
    low = {name.lower(): text for name, text in headers.items()}
    try:
        now, then = (parsedate_to_datetime(low[name]) for name in ("date", "last-modified"))
        return (now - then).total_seconds()
    except (KeyError, ValueError, TypeError):
        return 0.0


@contextlib.asynccontextmanager
async def opened(url: Url, options: Mapping[str, str], verb: str = "Reading") -> AsyncIterator[Store]:
    """The bucket of a URL, with the settings of ``--storage-option``. Raises ``StorageError`` if it cannot be used."""
    with _silence():
        chosen = {
            key: value.lower() == "true" if value.lower() in ("true", "false") else value
            for key, value in options.items()
        }
        open_line = chosen.pop("insecure", False)
        async with contextlib.AsyncExitStack() as stack:
            try:
                store = await _opening(url, chosen, stack)
            except StorageError:
                raise
            except ImportError:
                raise StorageError(_needs(url, verb)) from None
            except Exception as error:  # noqa: BLE001 - of three libraries
                raise StorageError(sentence(answer_to(error), url)) from None
            if is_open_line(store.endpoint) and not open_line:
                raise StorageError(
                    f"The endpoint of {url.scheme}:// has no TLS, so everyone on the way could read along. Use https://, or "
                    "--storage-option insecure=true."
                )
            try:
                yield store
            except Answer as answer:
                raise StorageError(sentence(answer, url)) from None


def _needs(url: Url, verb: str) -> str:
    package = __name__.partition(".")[0]
    place = [f"{url.backend}://{url.bucket}/{url.key}"]
    if url.backend == "az":
        place = [url.bucket, f"{url.key}/*" if url.key else "*"]
    command = _COPY[url.backend].format(*map(shlex.quote, place))
    other = (
        f"{command} && make-report --job-dir my-job"
        if verb == "Reading"
        else "write into a folder, and copy it"
    )
    return f"{verb} {url.scheme}:// needs: pip install '{package}[{url.backend}]'. Or: {other}."


async def _opening(url: Url, chosen: dict[str, Any], stack: contextlib.AsyncExitStack) -> Store:
    pays = chosen.get("requester_pays", False)
    if url.backend == "s3":
        import s3fs  # noqa: PLC0415 - an extra

        limits: dict[str, Any] = {"connect_timeout": CONNECT_S, "read_timeout": READ_S}
        # As many connections as there are requests at a time; tries are counted here.
        limits |= {"max_pool_connections": 16, "retries": {"total_max_attempts": 1}}
        client = await s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            config_kwargs=limits,
            **({"client_kwargs": {"region_name": chosen["region"]}} if "region" in chosen else {}),
            **_only(chosen, "anon", "profile", "endpoint_url"),
        ).set_session()
        stack.push_async_callback(client.close)
        return _S3(url.bucket, client, pays=pays)
    import aiohttp  # noqa: PLC0415 - comes with the extras

    limit = aiohttp.ClientTimeout(sock_connect=CONNECT_S, sock_read=READ_S)
    if url.backend == "gs":
        # What it asks for, with a library that does not bear a fork, is not used here.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        from gcsfs.core import GCSFileSystem  # noqa: PLC0415 - an extra

        is_open = chosen.get("anon", False)
        system = GCSFileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            token="anon" if is_open else None,
            **_only(chosen, "project", "endpoint_url"),
        )
        if not is_open and system.credentials.credentials is None:
            raise Answer(401, "no credentials")
        session = aiohttp.ClientSession(timeout=limit, auto_decompress=False, trust_env=True)
        return _GS(url.bucket, system, await stack.enter_async_context(session), pays=pays)
    return _Azure(url.bucket, await _azure_service(url, chosen, stack))


async def _azure_service(url: Url, chosen: Mapping[str, Any], stack: contextlib.AsyncExitStack) -> Any:
    """A client with the first credentials that there are, in the variables of adlfs, or those of Azure's own chain."""
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an extra
    from azure.storage.blob.aio import BlobServiceClient  # noqa: PLC0415

    limits = {"connection_timeout": CONNECT_S, "read_timeout": READ_S, "retry_total": 0}
    known = {
        name: os.environ.get(f"AZURE_STORAGE_{name}")
        for name in ("CONNECTION_STRING", "ACCOUNT_KEY", "SAS_TOKEN")
    }
    if known["CONNECTION_STRING"] and not url.account:
        service = BlobServiceClient.from_connection_string(known["CONNECTION_STRING"], **limits)
        return await stack.enter_async_context(service)
    name, _, host = url.account.partition(".")
    name = name or chosen.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if not name:
        raise StorageError(
            f"{url.scheme}:// needs the name of the storage account: --storage-option account_name=NAME, or "
            "AZURE_STORAGE_ACCOUNT_NAME."
        )
    credential: Any = None
    if not chosen.get("anon"):
        credential = known["ACCOUNT_KEY"] or known["SAS_TOKEN"]
        if not credential:
            credential = await stack.enter_async_context(DefaultAzureCredential())
    account = f"https://{name}.{host.replace('dfs.', 'blob.', 1) or 'blob.core.windows.net'}"
    address = chosen.get("endpoint_url") or account
    return await stack.enter_async_context(BlobServiceClient(address, credential=credential, **limits))


def _only(chosen: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: chosen[name] for name in names if name in chosen}


def sentence(answer: Answer, url: Url) -> str:
    """What to tell a user who named the URL."""
    if answer.status == 401:
        return f"No credentials for {url.scheme}:// were found. Public data: --storage-option anon=true."
    if answer.status == 403:
        return f"No permission for {url.scheme}://{url.bucket} ({answer.reason})."
    if answer.status == 404:
        return f"Not found: {url} ({answer.reason})."
    return f"{url.scheme}://{url.bucket} cannot be used: {answer.reason}."


@contextlib.contextmanager
def _silence() -> Any:
    """Nothing of what the libraries log or warn of: it may hold keys, and goes to the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
