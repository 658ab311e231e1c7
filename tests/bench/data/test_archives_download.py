import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regtta.errors import ExistingFileError, FileError, InvalidFileError, MissingFileError
from regtta_bench.data import archives as fetching
from regtta_bench.data.archives import download_file

CONTENT = b"longitude,latitude\n" * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif self.path in ("/whole", "/cut", "/unsized"):
            self.send_response(200)
            if self.path != "/unsized":
                self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000] if self.path == "/cut" else CONTENT)
        else:
            self.send_error(404)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """Start a local server without encryption, with http as the only allowed scheme in place of https."""
    monkeypatch.setattr(fetching, "SCHEME", "http")
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_file_is_downloaded_and_progress_reported(server, tmp_path):
    reported = []
    path = download_file(
        f"{server}/whole", tmp_path / "a.csv", sha256=SHA256, limit=10**6, progress=lambda *now: reported.append(now)
    )
    assert path.read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]
    assert reported[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})
    reported.clear()
    download_file(
        f"{server}/unsized", tmp_path / "b", sha256=SHA256, limit=10**6, progress=lambda *now: reported.append(now)
    )
    assert reported[-1] == (len(CONTENT), None)


def test_a_redirection_is_followed_but_not_to_another_scheme(server, tmp_path):
    download_file(f"{server}/to/{server}/whole", tmp_path / "a", sha256=SHA256, limit=10**6)
    for elsewhere in ("https://127.0.0.1:9/x", "ftp://127.0.0.1:9/x", "file:///etc/hostname"):
        with pytest.raises(FileError, match="begins with http://|is not allowed"):
            download_file(f"{server}/to/{elsewhere}", tmp_path / "b", sha256=SHA256, limit=10**6)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("address", "limit", "kind", "message"),
    [
        ("/cut", 10**6, FileError, "Nothing was written"),
        ("/absent", 10**6, FileError, "Could not fetch .*/absent to .*404.*Check the network"),
        ("/whole", 1000, InvalidFileError, "at most 1000 bytes"),
        ("/a b", 10**6, FileError, "Could not fetch"),
    ],
)
def test_failures_leave_no_file_behind(server, tmp_path, address, limit, kind, message):
    with pytest.raises(kind, match=message):
        download_file(server + address, tmp_path / "a", sha256=SHA256, limit=limit)
    assert not list(tmp_path.iterdir())


def test_an_error_on_a_wrong_checksum_names_both(server, tmp_path):
    with pytest.raises(InvalidFileError, match=f"sha256 {SHA256}, expected {'0' * 64}"):
        download_file(f"{server}/whole", tmp_path / "a", sha256="0" * 64, limit=10**6)
    assert not list(tmp_path.iterdir())


def test_an_interruption_leaves_nothing_behind(server, tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_file(f"{server}/whole", tmp_path / "a", sha256=SHA256, limit=10**6, progress=interrupt)
    assert not list(tmp_path.iterdir())


def test_no_server_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(FileError, match="Could not fetch https://127.0.0.1:9/x .*refused"):
        download_file("https://127.0.0.1:9/x", tmp_path / "a", sha256=SHA256, limit=10)


def test_existing_files_stay_and_only_https_is_accepted(tmp_path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ExistingFileError, match="a exists"):
        download_file("https://127.0.0.1:9/x", tmp_path / "a", sha256=SHA256, limit=10)
    assert (tmp_path / "a").read_text() == "mine"
    with pytest.raises(MissingFileError, match="There is no folder"):
        download_file("https://127.0.0.1:9/x", tmp_path / "none" / "a", sha256=SHA256, limit=10)
    for url in ("http://127.0.0.1:9/x", "file:///etc/hostname", "x"):
        with pytest.raises(FileError, match="begins with https://"):
            download_file(url, tmp_path / "b", sha256=SHA256, limit=10)
