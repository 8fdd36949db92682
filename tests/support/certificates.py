"""Certificates of a test, made by openssl: authorities, servers, clients, one of them expired."""

from __future__ import annotations

from pathlib import Path

from programs import run_program

_ANY_NAME = (
    "[ca]\ndefault_ca=own\n[own]\ndatabase=index\nserial=serial\ndefault_md=sha256\n"
    "policy=any\nnew_certs_dir=.\ncopy_extensions=copy\nunique_subject=no\n"
    "[any]\ncommonName=supplied\n"
)


class Authority:
    """A certificate authority in its own folder; `ca` is its certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        (folder / "openssl.cnf").write_text(_ANY_NAME)
        (folder / "index").touch()
        (folder / "serial").write_text("01\n")
        self.ca = folder / "ca.pem"
        self._openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority"),
        )

    def issue(self, name: str, *, expired: bool = False) -> tuple[Path, Path]:
        """Makes a certificate for 127.0.0.1 and its key (PKCS#8). Returns both files."""
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        span = ("200101000000Z", "200201000000Z") if expired else ("200101000000Z", "490101000000Z")
        self._openssl(
            *("ca", "-batch", "-notext", "-config", "openssl.cnf", "-cert", "ca.pem"),
            *("-keyfile", "ca.key", "-in", f"{name}.csr", "-out", f"{name}.pem"),
            *("-startdate", span[0], "-enddate", span[1]),
        )
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def store(self, name: str, *, expired: bool = False) -> Path:
        """Writes a certificate, its key and the authority to one file, as brokers read them."""
        certificate, key = self.issue(name, expired=expired)
        store = self.folder / f"{name}.store.pem"
        store.write_text(
            key.read_text() + certificate.read_text() + self.ca.read_text(), encoding="utf-8"
        )
        return store

    def _openssl(self, *arguments: str) -> None:
        run_program("openssl", *arguments, folder=self.folder, check=True)
