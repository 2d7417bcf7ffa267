"""nginx with limner's own configuration, moved to free ports and a folder of the test."""

import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import trustme

from tests.serving.conftest import ROOT, free_port

CONFIG = ROOT / "deploy" / "nginx.conf"
NAME = "limner.example.org"
_START_WITHIN_S = 20.0


@dataclass(frozen=True)
class Nginx:
    """A running one."""

    url: str
    """Over TLS."""
    plain_url: str
    port: int
    ca: Path
    """The certificate to trust."""
    folder: Path
    """With its logs, ``access.log`` and ``error.log``."""

    def client(self) -> httpx.Client:
        """Asks over HTTP/1.1 and checks the certificate."""
        trusted = ssl.create_default_context(cafile=str(self.ca))
        trusted.check_hostname = True
        return httpx.Client(base_url=self.url, verify=trusted, timeout=60, trust_env=False)

    def curl(self, path: str, *options: str) -> str:
        """What curl gives on its standard output."""
        command = ["curl", "-sS", "--noproxy", "*", "--max-time", "60", "--cacert", str(self.ca), *options]
        done = subprocess.run([*command, self.url + path], capture_output=True, text=True, check=True)
        return done.stdout


def rendered(upstream: str, folder: Path, tls_port: int, plain_port: int, **other: str) -> str:
    """The configuration with the addresses and paths of a test in place of its own; ``other`` ones besides."""
    text = CONFIG.read_text("utf-8")
    for old, new in {
        "server 127.0.0.1:8000;": f"server {upstream};",
        "listen 443 ": f"listen 127.0.0.1:{tls_port} ",
        "listen [::]:443 ": f"listen 127.0.0.2:{tls_port} ",
        "listen 80;": f"listen 127.0.0.1:{plain_port};",
        "listen [::]:80;": f"listen 127.0.0.2:{plain_port};",
        "/etc/limner/tls/": f"{folder}/",
        "/var/lib/nginx/": f"{folder}/",
        "/var/log/nginx/": f"{folder}/",
        **other,
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def running_nginx(upstream: str, folder: Path, **other: str) -> Iterator[Nginx]:
    """One in front of ``upstream``, ``HOST:PORT``, while the block runs."""
    ca, tls_port, plain_port = trustme.CA(), free_port(), free_port()
    certificate = ca.issue_cert(NAME, "127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "privkey.pem")
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    (folder / "fullchain.pem").write_bytes(chain)
    ca.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "nginx.conf").write_text(rendered(upstream, folder, tls_port, plain_port, **other), "utf-8")
    url = f"https://127.0.0.1:{tls_port}"
    nginx = Nginx(url, f"http://127.0.0.1:{plain_port}", tls_port, folder / "ca.pem", folder)
    checked = subprocess.run([*command(folder), "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert not re.search(r"\[(warn|error|alert|emerg)\]", checked.stderr), checked.stderr
    process = subprocess.Popen(command(folder), stderr=subprocess.DEVNULL)
    try:
        _await_answer(nginx, process)
        yield nginx
    finally:
        process.terminate()
        process.wait(20)


def command(folder: Path) -> list[str]:
    """What starts it: as this user, in the foreground."""
    settings = f"daemon off; pid {folder}/nginx.pid;"
    if os.geteuid() == 0:  # its workers would be another user, who cannot read the folder of a test
        settings += " user root;"
    return [
        "nginx",
        "-p",
        str(folder),
        "-c",
        str(folder / "nginx.conf"),
        "-e",
        str(folder / "error.log"),
        "-g",
        settings,
    ]


def _await_answer(nginx: Nginx, process: "subprocess.Popen[bytes]") -> None:
    give_up = time.monotonic() + _START_WITHIN_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            httpx.get(nginx.plain_url, trust_env=False)
            return
        except httpx.TransportError:
            time.sleep(0.02)
    raise AssertionError(f"nginx did not start: {(nginx.folder / 'error.log').read_text('utf-8')}")
