"""A look at a listener by a connection of our own: librdkafka's errors say too little.

The listener is probed only when no answer comes. The connection sends only the beginning of TLS.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress

_SECONDS = 3.0
# OpenSSL's codes (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_IP = 9, 10, 62, 64


def why_not_in(servers: str, options: dict[str, str], within_seconds: float) -> str:
    """Explains why a listener does not let in clients with these options.

    Returns an empty text if the reason cannot be seen in time. Only the first server that takes a
    connection is probed.
    """
    until = time.monotonic() + within_seconds
    wants_tls = "SSL" in options.get("security.protocol", "PLAINTEXT").upper()
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        host = host.rpartition("://")[2].strip("[]")
        if not port.isdigit() or not _accepts_connections(host, int(port), until):
            continue
        has_tls = _has_tls(host, int(port), until)
        if has_tls is not True:
            wrong = wants_tls and has_tls is False
            return f"{server} speaks no TLS, and kafka.auth wants it" if wrong else ""
        if not wants_tls:
            return f"{server} speaks TLS alone, and this client is to talk without"
        return _why_distrusted(host, int(port), options, server, until)
    return ""


def _seconds_left(until: float) -> float:
    """Returns the longest time that a step may take, in seconds."""
    return max(0.1, min(_SECONDS, until - time.monotonic()))


def _accepts_connections(host: str, port: int, until: float) -> bool:
    with suppress(OSError), socket.create_connection((host, port), _seconds_left(until)):
        return True
    return False


def _has_tls(host: str, port: int, until: float) -> bool | None:
    """Returns True for a listener that speaks TLS, and None for a silent listener."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), _seconds_left(until)) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        # An alert is an answer by TLS: this server wants more of TLS than we offer.
        return "ALERT" in (error.reason or "")
    except TimeoutError:
        return None
    except OSError:
        return False


def _why_distrusted(
    host: str, port: int, options: dict[str, str], server: str, until: float
) -> str:
    """Explains why a listener's certificate, or ours, is refused; "" if neither is refused."""
    ca, own = options.get("ssl.ca.location"), options.get("ssl.certificate.location")
    try:
        context = ssl.create_default_context(cafile=ca)
        # librdkafka and Java take a certificate in the file for an authority's certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if options.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if own:
            # Without a password, Python would ask for one at the terminal.
            password = options.get("ssl.key.password", "")
            context.load_cert_chain(own, options.get("ssl.key.location"), password)
    except (OSError, ValueError):
        return f"the certificate {own} and its key do not belong together" if own else ""
    try:
        with (
            socket.create_connection((host, port), _seconds_left(until)) as plain,
            context.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            # A server of TLS 1.3 refuses a client's certificate after the handshake.
            wrapped.settimeout(_SECONDS / 3)
            with suppress(TimeoutError):
                wrapped.read(1)
            return ""
    except ssl.SSLCertVerificationError as error:
        return {
            _EXPIRED: f"the certificate of {server} has expired",
            _NOT_YET_VALID: f"the certificate of {server} is not valid yet",
            _OTHER_HOST: f"the certificate of {server} is for another name",
            _OTHER_IP: f"the certificate of {server} is for another address",
        }.get(
            error.verify_code,
            f"the certificate of {server} is of no authority in "
            f"{ca or 'the list of the system: name yours in kafka.auth.ca'}",
        )
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return ""
        if own:
            return f"{server} refuses the certificate {own}"
        return f"{server} wants a certificate of the client: kafka.auth.certificate and key"
    except OSError:
        return ""
