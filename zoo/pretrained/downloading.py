"""Files from the net, in a cache: whole and with the right digest, or not there at all.

A download goes to a ``.partial`` file, is continued where it broke off, and takes its final name only when its length
and, where one is stated, its SHA-256 are right. A file in the cache is used without a request.
"""

import hashlib
import http.client
import logging
import os
import re
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from zoo.pretrained.card import SHA256_PATTERN
from zoo.serialization import sha256_of

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
CHUNK_BYTES = 1 << 20

_logger = logging.getLogger(__name__)
_SHORT_DIGEST = re.compile(r"[0-9a-f]{8,63}")


class DownloadError(OSError):
    """A file could not be fetched, or is not the one it should be."""


class _InterruptedError(Exception):
    """The connection ended before the file did."""


def cache_folder() -> Path:
    """Return where downloads are kept: ``$ZOO_CACHE``, else ``vision-attention-zoo`` in the user's cache folder."""
    chosen = os.environ.get("ZOO_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vision-attention-zoo"


def is_offline() -> bool:
    """Tell whether the environment forbids requests: ``ZOO_OFFLINE`` or ``HF_HUB_OFFLINE`` is 1, true, yes or on."""
    return any(
        os.environ.get(name, "").lower() in {"1", "true", "yes", "on"} for name in ("ZOO_OFFLINE", "HF_HUB_OFFLINE")
    )


def cached_path(url: str) -> Path:
    """Return where the file of a URL lies in the cache, or will lie: a folder per URL, and the file's own name."""
    name = unquote(urlsplit(url).path).rpartition("/")[2].lstrip(".") or "file"
    return cache_folder() / hashlib.sha256(url.encode()).hexdigest()[:16] / re.sub(r"[^\w.+-]", "_", name)


def fetch(
    url: str, *, sha256: str | None = None, sha256_start: str | None = None, timeout: float = TIMEOUT_SECONDS
) -> Path:
    """Return the path of a URL's file in the cache, downloaded if it is not there yet.

    Args:
        url: An http or https address.
        sha256: The digest the file must have, 64 lower-case hexadecimal digits; a cached file with another one is
            fetched anew.
        sha256_start: The first 8 digits or more, for publishers that state no more.
        timeout: Seconds the server may be silent.

    Raises:
        ValueError: The address or a digest is malformed; nothing is requested.
        DownloadError: The file cannot be had, or has another digest and is deleted; the message is one line, and says
            where to put the file by hand.
    """
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise ValueError(f"{url!r} must be an http or https address; a file on this machine is given by its path")
    check_digest(sha256, sha256_start)
    target = cached_path(url)
    if target.exists() and _has_digest(target, sha256, sha256_start):
        return target
    if is_offline():
        raise DownloadError(f"{url} is not in the cache, and requests are switched off; {_by_hand(target)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / ".lock"):
        if target.exists():  # from before, and wrong; or from another process, while this one waited
            if _has_digest(target, sha256, sha256_start):
                return target
            target.unlink()
        _logger.warning("downloading %s to %s", url, target)
        partial = target.with_name(f"{target.name}.partial")
        _download(url, partial, target, timeout)
        digest = sha256_of(partial)
        if not _has_digest(partial, sha256, sha256_start):
            partial.unlink()
            raise DownloadError(f"{url} has sha256 {digest}, expected {sha256 or sha256_start}: deleted")
        partial.replace(target)
    return target


def check_digest(sha256: str | None, sha256_start: str | None = None) -> None:
    """Raise ValueError unless a digest that is given could be one: a short or empty one would match too much."""
    if sha256 is not None and not SHA256_PATTERN.fullmatch(sha256):
        raise ValueError(f"sha256 must be 64 lower-case hexadecimal digits, not {sha256!r}")
    if sha256_start is not None and not _SHORT_DIGEST.fullmatch(sha256_start):
        raise ValueError(f"sha256_start must be 8 or more lower-case hexadecimal digits, not {sha256_start!r}")


def _has_digest(path: Path, sha256: str | None, sha256_start: str | None) -> bool:
    if sha256 is None and sha256_start is None:
        return True
    digest = sha256_of(path)
    return digest == sha256 if sha256 is not None else digest.startswith(str(sha256_start))


def _by_hand(target: Path) -> str:
    return f"put the file at {target}"


def _download(url: str, partial: Path, target: Path, timeout: float) -> None:
    """Fill ``partial``, going on after an interruption as long as the last attempt brought something."""
    for attempt in range(1, ATTEMPTS + 1):
        before = _size(partial)
        try:
            _continue_download(url, partial, timeout)
            return
        except urllib.error.HTTPError as error:
            error.close()
            _forget(partial)
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and before:
                continue
            raise DownloadError(f"{url}: the server answers {error.code} {error.reason}".splitlines()[0]) from None
        except DownloadError:
            raise
        except (OSError, http.client.HTTPException, _InterruptedError) as error:
            if _size(partial) != before and attempt < ATTEMPTS:
                continue
            if not _remembered(partial).exists():  # nothing would tell whether the rest belongs to this part
                _forget(partial)
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                reason = f"the server was silent for {timeout:g} seconds"
            raise DownloadError(f"{url} cannot be fetched: {reason}; try again, or {_by_hand(target)}") from None


def _continue_download(url: str, partial: Path, timeout: float) -> None:
    """Append to ``partial`` what it lacks, or begin anew where the server's file may be another by now."""
    remembered = _remembered(partial)
    start = _size(partial) if remembered.exists() else 0
    headers = {"User-Agent": "vision-attention-zoo", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": remembered.read_text(encoding="latin-1")}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        if response.status == HTTPStatus.PARTIAL_CONTENT:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                _forget(partial)
                raise _InterruptedError(f"the server sent another part than the one from byte {start} on")
        else:
            start = 0
        remembered.unlink(missing_ok=True)
        if validator := _validator(response.headers):
            remembered.write_text(validator, encoding="latin-1")
        length = response.headers.get("Content-Length")
        if length is None and response.headers.get("Transfer-Encoding") != "chunked":
            raise _InterruptedError("the server does not say how long the file is, so a part could pass for the whole")
        received = _append(response, partial, "ab" if start else "wb")
        if length is not None and received < int(length):
            raise _InterruptedError(f"the connection ended after {start + received:,} of {start + int(length):,} bytes")
    remembered.unlink(missing_ok=True)


def _append(response: Any, partial: Path, mode: str) -> int:
    """Write the body to the file; a full disk leaves no part of it behind."""
    received = 0
    with partial.open(mode) as file:
        while chunk := response.read(CHUNK_BYTES):
            try:
                file.write(chunk)
                file.flush()
            except OSError as error:
                _forget(partial)
                raise DownloadError(f"{partial.parent}: {error.strerror} while writing the download") from None
            received += len(chunk)
    return received


def _validator(headers: Any) -> str | None:
    """Return what identifies this version of the file for ``If-Range``; a weak tag does not."""
    tag = headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    modified = headers.get("Last-Modified")
    return str(modified) if modified else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _remembered(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.validator")


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _remembered(partial).unlink(missing_ok=True)
