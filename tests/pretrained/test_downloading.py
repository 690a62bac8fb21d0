"""Downloads from a server on this machine that misbehaves in every way a server can."""

import hashlib
import http.server
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zoo.pretrained import downloading
from zoo.pretrained.downloading import DownloadError, cache_folder, cached_path, fetch, is_offline

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the path; what was asked is in ``server.requests``."""

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        name = self.path.strip("/").partition("/")[0]
        getattr(self, f"answer_{name}", self.answer_missing)()

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for header, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer_whole(self) -> None:
        self.send(200, CONTENT)

    def answer_missing(self) -> None:
        self.send(404, b"no such file")

    def answer_broken(self) -> None:
        self.send(500, b"out of order")

    def answer_redirect(self) -> None:
        self.send(302, b"", Location="/resumable/" + self.path.rpartition("/")[2])

    def answer_circle(self) -> None:
        self.send(302, b"", Location=self.path)

    def answer_silent(self) -> None:
        time.sleep(1.5)

    def answer_falling_silent(self) -> None:
        self.send(200, CONTENT[:3000], Content_Length=str(len(CONTENT)))
        self.wfile.flush()
        time.sleep(1.5)

    def answer_cut(self) -> None:
        """Promise everything, send half, and know nothing of ranges."""
        self.send(200, CONTENT[: len(CONTENT) // 2], Content_Length=str(len(CONTENT)))

    def answer_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT[:5000])

    def answer_resumable(self) -> None:
        """Send at most 4,000 bytes a time, from where the client asks."""
        self.answer_part(4000, '"v1"')

    def answer_changing(self) -> None:
        """The file is another one at every request."""
        self.answer_part(4000, f'"v{len(self.server.requests)}"')

    def answer_part(self, size: int, tag: str) -> None:
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range") == tag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(CONTENT):
                self.send(416, b"")
                return
            rest = CONTENT[start:]
            where = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
            self.send(206, rest[:size], Content_Length=str(len(rest)), Content_Range=where, ETag=tag)
            return
        self.send(200, CONTENT[:size], Content_Length=str(len(CONTENT)), ETag=tag)


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("ZOO_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def files(cache: Path) -> list[str]:
    """Return the names of all files in the cache but for the locks."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.name != ".lock")


def fail(url: str, **options) -> str:
    with pytest.raises(DownloadError) as caught:
        fetch(url, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert url in message
    return message


def test_a_file_is_fetched_once_and_lies_under_its_own_name(server, cache: Path, caplog) -> None:
    url = f"{server.url}/whole/resnet20.safetensors"
    with caplog.at_level(logging.WARNING):
        path = fetch(url, sha256=DIGEST)
    assert path == cached_path(url)
    assert path.name == "resnet20.safetensors"
    assert cache in path.parents
    assert path.read_bytes() == CONTENT
    assert fetch(url, sha256=DIGEST) == path
    assert len(server.requests) == 1
    assert [record.message for record in caplog.records] == [f"downloading {url} to {path}"]


def test_two_addresses_with_the_same_file_name_do_not_meet(server) -> None:
    assert fetch(f"{server.url}/whole/a.pth") != fetch(f"{server.url}/whole/b/a.pth")


def test_an_interrupted_file_is_continued_where_it_broke_off(server, cache: Path) -> None:
    assert fetch(f"{server.url}/resumable/a.bin", sha256=DIGEST).read_bytes() == CONTENT
    assert [(asked, tag) for _, asked, tag in server.requests] == [
        (None, None),
        ("bytes=4000-", '"v1"'),
        ("bytes=8000-", '"v1"'),
    ]
    assert files(cache) == ["a.bin"]


def test_a_part_left_by_an_earlier_process_is_continued(server, cache: Path) -> None:
    url = f"{server.url}/resumable/a.bin"
    target = cached_path(url)
    target.parent.mkdir(parents=True)
    target.with_name("a.bin.partial").write_bytes(CONTENT[:9000])
    target.with_name("a.bin.partial.validator").write_text('"v1"')
    assert fetch(url, sha256=DIGEST).read_bytes() == CONTENT
    assert server.requests == [("/resumable/a.bin", "bytes=9000-", '"v1"')]


def test_a_part_of_a_file_that_has_changed_is_thrown_away(server, cache: Path) -> None:
    url = f"{server.url}/resumable/a.bin"
    target = cached_path(url)
    target.parent.mkdir(parents=True)
    target.with_name("a.bin.partial").write_bytes(b"x" * 9000)
    target.with_name("a.bin.partial.validator").write_text('"v0"')
    assert fetch(url).read_bytes() == CONTENT


def test_a_part_that_is_longer_than_the_file_is_thrown_away(server, cache: Path) -> None:
    url = f"{server.url}/resumable/a.bin"
    target = cached_path(url)
    target.parent.mkdir(parents=True)
    target.with_name("a.bin.partial").write_bytes(b"x" * 20_000)
    target.with_name("a.bin.partial.validator").write_text('"v1"')
    assert fetch(url).read_bytes() == CONTENT


def test_a_connection_that_ends_early_leaves_no_file_under_the_final_name(server, cache: Path) -> None:
    message = fail(f"{server.url}/cut/a.bin")
    assert "the connection ended after 5,120 of 10,240 bytes" in message
    assert str(cached_path(f"{server.url}/cut/a.bin")) in message
    assert "a.bin" not in files(cache)
    fail(f"{server.url}/cut/a.bin")
    assert len(server.requests) == 4, "the half is not trusted at the second start: it asks again"


def test_a_file_that_changes_at_every_request_is_never_pieced_together(server, cache: Path) -> None:
    fail(f"{server.url}/changing/a.bin")
    assert "a.bin" not in files(cache)


def test_a_body_of_unstated_length_is_refused(server, cache: Path) -> None:
    assert "does not say how long the file is" in fail(f"{server.url}/endless/a.bin")
    assert files(cache) == []


def test_a_wrong_digest_deletes_the_file_and_gives_both_values(server, cache: Path) -> None:
    wrong = DIGEST[:-1] + ("0" if DIGEST[-1] != "0" else "1")
    assert f"has sha256 {DIGEST}, expected {wrong}: deleted" in fail(f"{server.url}/whole/a.bin", sha256=wrong)
    assert files(cache) == []
    assert "expected ffffffff: deleted" in fail(f"{server.url}/whole/a.bin", sha256_start="ffffffff")
    assert fetch(f"{server.url}/whole/a.bin", sha256_start=DIGEST[:8]).read_bytes() == CONTENT


def test_a_cached_file_with_one_changed_byte_is_fetched_again(server) -> None:
    url = f"{server.url}/whole/a.bin"
    path = fetch(url, sha256=DIGEST)
    path.write_bytes(b"x" + CONTENT[1:])
    assert fetch(url, sha256=DIGEST).read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("sha256", ["", "abc", DIGEST[:7], DIGEST[:63], DIGEST.upper(), DIGEST + "0", DIGEST + "\n"])
def test_a_malformed_digest_is_refused_before_any_request(server, sha256: str) -> None:
    with pytest.raises(ValueError, match="sha256 must be 64 lower-case hexadecimal digits"):
        fetch(f"{server.url}/whole/a.bin", sha256=sha256)
    assert server.requests == []


@pytest.mark.parametrize("start", ["", "abc", DIGEST[:7], DIGEST[:8].upper().replace("0", "A")])
def test_a_short_or_empty_start_of_a_digest_is_refused_before_any_request(server, start: str) -> None:
    with pytest.raises(ValueError, match="sha256_start must be 8 or more"):
        fetch(f"{server.url}/whole/a.bin", sha256_start=start)
    assert server.requests == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/a", "a.bin", "http://", "https:///a"])
def test_only_http_addresses_are_fetched(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http or https address"):
        fetch(url)


def test_a_redirect_is_followed_and_resumed(server) -> None:
    assert fetch(f"{server.url}/redirect/a.bin", sha256=DIGEST).read_bytes() == CONTENT
    assert ("/resumable/a.bin", "bytes=4000-", '"v1"') in server.requests


def test_a_redirect_in_a_circle_ends(server, cache: Path) -> None:
    fail(f"{server.url}/circle/a.bin")
    assert files(cache) == []


@pytest.mark.parametrize(("path", "status"), [("missing", "404 Not Found"), ("broken", "500 Internal Server Error")])
def test_a_refusal_of_the_server_is_given_with_its_status(server, cache: Path, path: str, status: str) -> None:
    assert f"the server answers {status}" in fail(f"{server.url}/{path}/a.bin")
    assert files(cache) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("path", ["silent", "falling_silent"])
def test_a_server_that_falls_silent_is_given_up(server, cache: Path, path: str) -> None:
    started = time.monotonic()
    message = fail(f"{server.url}/{path}/a.bin", timeout=0.2)
    assert "the server was silent for 0.2 seconds" in message
    assert time.monotonic() - started < 2.0
    assert "a.bin" not in files(cache)


def test_an_unreachable_server_names_where_to_put_the_file(cache: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a.bin"
        message = fail(url)
    assert "Connection refused" in message
    assert f"put the file at {cached_path(url)}" in message
    assert files(cache) == []


@pytest.mark.parametrize("variable", ["ZOO_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_a_cached_file_is_used_and_a_missing_one_named_without_a_socket(server, monkeypatch, variable) -> None:
    url = f"{server.url}/whole/a.bin"
    path = fetch(url, sha256=DIGEST)
    monkeypatch.setenv(variable, "1")

    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert is_offline()
    assert fetch(url, sha256=DIGEST) == path
    other = f"{server.url}/whole/b.bin"
    message = fail(other)
    assert "requests are switched off" in message
    assert f"put the file at {cached_path(other)}" in message


def test_a_file_put_there_by_hand_is_used(server) -> None:
    url = f"{server.url}/missing/a.bin"
    cached_path(url).parent.mkdir(parents=True)
    cached_path(url).write_bytes(CONTENT)
    assert fetch(url, sha256=DIGEST) == cached_path(url)
    assert server.requests == []


class FullDisk:
    """A file on which nothing fits."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "wb")  # noqa: SIM115, PTH123 # Path.open is the one replaced

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk[:100])
        raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_nothing_behind(server, cache: Path, monkeypatch) -> None:
    monkeypatch.setattr(Path, "open", lambda path, mode="r", **_: FullDisk(path))
    with pytest.raises(DownloadError, match=r"No space left on device while writing the download"):
        fetch(f"{server.url}/whole/a.bin")
    monkeypatch.undo()
    assert files(cache) == []


def test_starts_at_the_same_time_download_once(server, cache: Path) -> None:
    url = f"{server.url}/resumable/a.bin"
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: fetch(url, sha256=DIGEST), range(8)))
    assert paths == [cached_path(url)] * 8
    assert len(server.requests) == 3, "the three parts of one download"
    assert files(cache) == ["a.bin"]


def test_the_cache_is_where_it_is_set_or_in_the_users_cache_folder(monkeypatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("ZOO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "vision-attention-zoo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "vision-attention-zoo"


@pytest.mark.parametrize("name", ["../../evil", "..", "%2e%2e%2fevil", "a b?x=1", ""])
def test_no_address_leads_out_of_the_cache(name: str, cache: Path) -> None:
    path = cached_path(f"https://host/{name}")
    assert path.resolve().parent.parent == cache.resolve()
    assert path.name not in {"", ".", ".."}
    assert downloading.cached_path("https://host/a") != downloading.cached_path("https://host/b/a")
