"""TLS contexts that trust the system's certificate authorities, or only those in a given file."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from kappa.base.errors import SettingsError
from kappa.serving.collect.pulled.source import PulledSource, SourceAway

# A certificate that signs itself, or whose authority is not known.
# Source: openssl/x509_vfy.h, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and the next codes.
_UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})


def ensure_readable(ca: Path, here: str) -> None:
    """Raises SettingsError if a file of certificate authorities cannot be used.

    `ca` is the file, and `here` is the name of the setting that contains its path.
    """
    if not ca.is_absolute():
        raise SettingsError(f"{here} is {ca}", hint="give an absolute path")
    try:
        ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise SettingsError(
            f"{here} is {ca}, which cannot be read: {_tls_reason(error)}",
            hint="it is a file of certificates in PEM",
        ) from None


async def tls_of(source: PulledSource) -> ssl.SSLContext | None:
    """Returns the TLS context for a connection, or None for a connection without TLS.

    The file of certificate authorities is read each time, because certificates are renewed. Raises
    SourceAway if the file cannot be read.
    """
    if not source.is_secure:
        return None
    ca = None if source.ca is None else str(source.ca)
    try:
        return await asyncio.to_thread(ssl.create_default_context, cafile=ca)
    except OSError as error:
        raise SourceAway(
            f"collect.pull.{source.name}.ca, {ca}, cannot be read: {_tls_reason(error)}"
        ) from None


def why_no_tls(error: ssl.SSLError) -> str:
    """Describes why a TLS connection could not be established, or has failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
        is_unknown = error.verify_code in _UNKNOWN_AUTHORITY
        return f"{why}; name the file of its authority as its ca" if is_unknown else why
    return f"TLS has failed: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _tls_reason(error: OSError) -> str:
    is_tls = isinstance(error, ssl.SSLError)
    return "it has no certificate in PEM" if is_tls else error.strerror or str(error)
