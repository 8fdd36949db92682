"""Waits for a broker's answers up to a limit, and converts the broker's errors to Kappa's errors.

librdkafka's errors do not explain why a listener does not answer. So Kappa itself connects to the
listener, and begins a TLS handshake, to find the reason.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # exported, but not by name

from kappa.base.errors import AccessRefused, KappaError, Unreachable, UsageError
from kappa.kafka.acl import Acl, acl_missing, missing_of
from kappa.kafka.client_options import principal_of

# librdkafka's options by name.
Options = Mapping[str, str | int | float | bool]

# How long a running broker can take to answer, with room for a busy machine.
PATIENCE_SECONDS = 20.0
# A person who only looks wants to know within five seconds that no broker answers.
LOOKING_SECONDS = 3.0
# The interval at which a wait checks whether the broker lets the client in at all. librdkafka
# retries, and reports again, within the second of these times.
_LOOK_SECONDS, _RECENT_SECONDS = 1.0, 12.0
_NAP_SECONDS = 0.1
# A call that takes moments with a present broker may never end once it has taken so long.
_STUCK_SECONDS = 10.0
# A slower answer has a reason, which a connection of our own may show.
_SLOW_SECONDS = 1.8
# A question waits for the broker that librdkafka knows as the controller. If that broker is dead,
# librdkafka learns of another within this time, which is less than our patience; the default is
# five minutes.
_FOUND_AGAIN = {"topic.metadata.refresh.interval.ms": "10000"}
# The broker's address before librdkafka's message, and the state after the message.
_SAID = re.compile(r"^\S+: | \(after \d+ms in state \w+[^)]*\)")
_SECURED = "see [kafka.auth] in kappa.toml, and docs/howto/secured-kafka.md"

_Answer = TypeVar("_Answer")

UP = "start the platform with: kappa up -d; or see kafka.bootstrap_servers in kappa.toml"
AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        # The brokers answer, and all are fenced.
        KafkaError._PARTIAL,
    }
)
# The leader is not settled yet: right after a topic is made, and when a broker returns.
NOT_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        # "No leaders found": librdkafka asks the leaders for offsets, and there is none yet.
        KafkaError._NOENT,
    }
)


class Answers:
    """The requests to a cluster, with limited waits and with Kappa's errors.

    If a cluster refuses a request, librdkafka repeats the request forever, whatever the reason.
    librdkafka reports the reason only to the callback that `error_option` sets.
    """

    def __init__(
        self, bootstrap_servers: str, options: Options, patience_seconds: float | None = None
    ) -> None:
        """Stores the cluster's address, which errors contain, and the options of the clients.

        A wait for an answer ends after `patience_seconds`. The default is long enough for a busy
        machine.
        """
        self._bootstrap_servers = bootstrap_servers
        self._options = options
        self.patience_seconds = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._admin: AdminClient | None = None
        # The last report of a client that is not let in, and its time.
        self._heard = ""
        self._heard_at = -_RECENT_SECONDS
        # The last finding of a look at the listener, and its time.
        self._why = ""
        self._probed_at = -_RECENT_SECONDS

    @property
    def admin(self) -> AdminClient:
        """Returns the admin client, which sends the requests.

        After an Unreachable error, a new client is created. The old client may never find a broker
        again, even when the brokers are back; this can happen if a broker's answer to librdkafka
        listed no broker.
        """
        admin = self._admin
        if admin is None:
            with making("the client"):
                admin = AdminClient({**_FOUND_AGAIN, **self._options, **self.error_option})
            self._admin = admin
        return admin

    @property
    def error_option(self) -> dict[str, Any]:
        """Returns the client option that sets the callback for errors that belong to no request."""
        return {"error_cb": self._hear}

    def _hear(self, error: KafkaError) -> None:
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:
            self._heard, self._heard_at = error.str(), time.monotonic()

    def look(self) -> None:
        """Raises AccessRefused if the cluster has recently refused this client."""
        if self._admin is not None:
            self._admin.poll(0)
        if time.monotonic() - self._heard_at < _RECENT_SECONDS:
            raise self._refused()

    def waited(self, future: Future[_Answer]) -> _Answer:
        """Waits until `future` has an answer, and returns the answer.

        Raises the KafkaException of the answer, AccessRefused if the cluster refuses this client,
        or Unreachable if there is no answer in time.
        """
        began = time.monotonic()
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except TimeoutError:
                self._look_closely(began)
                if time.monotonic() > began + self.patience_seconds + 1:
                    raise self.unreachable() from None

    def result(self, future: Future[_Answer], otherwise: str, *needed: Acl) -> _Answer:
        """Waits until `future` has an answer, and returns the answer.

        If the answer is an error, raises Kappa's error for it, as `refuse` does. `otherwise`
        describes the failed action in the error, and `needed` contains the ACL rules that the
        action needs. Raises Unreachable if there is no answer in time.
        """
        try:
            return self.waited(future)
        except KafkaException as error:
            self.refuse(error, otherwise, *needed)

    def result_unless(
        self, code: int, future: Future[_Answer], otherwise: str, *needed: Acl
    ) -> _Answer | None:
        """Returns an answer as `result` does, or None if the answer is the error `code`.

        `code` is one of KafkaError's constants.
        """
        try:
            return self.waited(future)
        except KafkaException as error:
            if code_of(error) != code:
                self.refuse(error, otherwise, *needed)
            return None

    def retried(
        self, ask: Callable[[float], _Answer], patience_seconds: float = PATIENCE_SECONDS
    ) -> _Answer:
        """Calls `ask` with a timeout in seconds, repeatedly until `ask` returns an answer.

        During `patience_seconds`, an error that means that no broker can be reached leads to
        another call. Raises AccessRefused if the cluster refuses this client, and otherwise the
        KafkaException of the last call.
        """
        began = time.monotonic()
        while True:
            left = began + patience_seconds - time.monotonic()
            try:
                return ask(max(0.1, min(_LOOK_SECONDS, left)))
            except KafkaException as error:
                self._look_closely(began)
                if code_of(error) not in AWAY or left <= 0:
                    raise
                # Some errors are found at once.
                time.sleep(_NAP_SECONDS)

    def bounded_call(self, act: Callable[[], None], ask: Callable[[float], object]) -> bool:
        """Calls `act` in a thread, and returns True when `act` returns.

        If the broker was unreachable during the call, librdkafka may ignore the timeout of the
        call, and not notice that the broker is back; then `act` never returns. So after a while,
        `ask` sends a request with another client. If that client gets an answer while `act` still
        runs, this method stops waiting for `act` and returns False. Raises the error of `act`, or
        Unreachable if neither function returns in time.
        """
        raised = list[Exception]()

        def work() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001  # raised by the thread that waits
                raised.append(error)

        thread = threading.Thread(target=work, name="call", daemon=True)
        thread.start()
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        thread.join(_STUCK_SECONDS)
        while thread.is_alive():
            with suppress(KafkaException, KappaError):
                self.retried(ask, _LOOK_SECONDS)
                if thread.is_alive():
                    return False
            if time.monotonic() > deadline:
                raise self.unreachable()
            thread.join(_LOOK_SECONDS)
        for error in raised:
            raise error
        return True

    def metadata(self, patience_seconds: float) -> ClusterMetadata:
        """Returns the cluster's topics and brokers.

        Raises AccessRefused if the cluster refuses this client, and otherwise the KafkaException of
        the last request.
        """
        admin = self.admin
        return self.retried(lambda seconds: admin.list_topics(timeout=seconds), patience_seconds)

    def refuse(self, error: KafkaException, otherwise: str, *needed: Acl) -> NoReturn:
        """Raises Kappa's error for the error of a broker.

        `otherwise` describes the action that failed, and `needed` contains the ACL rules that the
        action needs.
        """
        self.look()
        if code_of(error) in AWAY:
            raise self.unreachable() from error
        missing = missing_of(code_of(error), *needed)
        if missing is not None:
            raise self.missing(missing) from error
        is_invalid = code_of(error) == KafkaError.INVALID_CONFIG
        raise KappaError(
            f"{otherwise}: {error.args[0].str()}",
            hint="correct the setting that the broker names"
            if is_invalid
            else "see the broker's log: kappa logs broker",
        ) from error

    def missing(self, acl: Acl) -> KappaError:
        """Returns the error for the rule `acl`, which this client needs and the cluster lacks."""
        return acl_missing(acl, self._bootstrap_servers, principal_of(self._options))

    def unreachable(self) -> Unreachable:
        """Returns the error for a cluster that does not answer, or that refuses this client.

        The error contains the reason if the reason can be found. The next request creates a new
        admin client.
        """
        self._admin = None
        why = self._probed(self.patience_seconds)
        if why:
            return self._not_let_in(why)
        secured = self._options.get("security.protocol")
        return Unreachable(
            f"no Kafka broker answers at {self._bootstrap_servers}",
            hint=f"{UP}; or its listener wants another protocol than {secured}" if secured else UP,
        )

    def _look_closely(self, since: float) -> None:
        """Raises AccessRefused if the cluster refuses this client.

        If an answer is late, this method also connects to the listener, to find refusals that
        librdkafka does not report. `since` is the time at which the wait for the answer began.
        """
        self.look()
        waited = time.monotonic() - since
        if waited >= _SLOW_SECONDS and (why := self._probed(self.patience_seconds - waited)):
            raise self._not_let_in(why)

    def _probed(self, within_seconds: float) -> str:
        """Returns the reason why the cluster refuses this client, or "" if none is found.

        The listener is checked at most once in a few seconds; between checks, the last result is
        returned.
        """
        at = time.monotonic()
        if at - self._probed_at >= _RECENT_SECONDS:
            self._why = why_not_in(self._bootstrap_servers, self._texts(), within_seconds)
            self._probed_at = at
        return self._why

    def _refused(self) -> AccessRefused:
        said = _SAID.sub("", self._heard)
        why = why_not_in(self._bootstrap_servers, self._texts(), self.patience_seconds)
        if "SASL" in said or not why:
            user = principal_of(self._options).removeprefix("User:")
            why = f"{f'user {user}' if user else 'the client'} is not let in: {said}"
        return self._not_let_in(why)

    def _not_let_in(self, why: str) -> AccessRefused:
        return AccessRefused(
            f"the Kafka cluster at {self._bootstrap_servers} cannot be used: {why}", hint=_SECURED
        )

    def _texts(self) -> dict[str, str]:
        return {name: str(value) for name, value in self._options.items()}


def wait_until(
    reached: Callable[[], bool], what: str, patience_seconds: float | None = None
) -> None:
    """Calls `reached` repeatedly until it returns True.

    Raises Unreachable if this takes longer than `patience_seconds`; `what` describes the wait in
    the message.
    """
    patience = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
    deadline = time.monotonic() + patience
    while not reached():
        if time.monotonic() > deadline:
            raise Unreachable(
                f"waited {patience:.0f} seconds for {what}",
                hint="see the broker's log: kappa logs broker",
            )
        time.sleep(0.05)


def code_of(error: KafkaException) -> int:
    """Returns the error code of an exception, which is one of KafkaError's constants."""
    return int(error.args[0].code())


@contextmanager
def making(what: str) -> Iterator[None]:
    """Raises UsageError if librdkafka refuses the options of a client.

    The `with` block creates the client. `what` names the client in the error.
    """
    try:
        yield
    except KafkaException as error:
        raise UsageError(
            f"{what} of Kafka cannot be made from kafka.auth and kafka.options: "
            f"{error.args[0].str()}",
            hint="see both in kappa.toml; names of options are librdkafka's",
        ) from error


_PROBE_SECONDS = 3.0
# OpenSSL's codes (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_IP = 9, 10, 62, 64


def why_not_in(servers: str, options: dict[str, str], within_seconds: float) -> str:
    """Returns the reason why a listener refuses clients with these options, or "".

    The result is "" if no reason is found within `within_seconds`. Only the first of the `servers`
    that accepts a connection is checked.
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
    """Returns the timeout, in seconds, of one step of a check that must end at `until`."""
    return max(0.1, min(_PROBE_SECONDS, until - time.monotonic()))


def _accepts_connections(host: str, port: int, until: float) -> bool:
    with suppress(OSError), socket.create_connection((host, port), _seconds_left(until)):
        return True
    return False


def _has_tls(host: str, port: int, until: float) -> bool | None:
    """Returns True if a listener uses TLS, False if it does not, and None if it does not answer."""
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
    """Returns the reason why the listener's or the client's certificate is refused, or ""."""
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
            wrapped.settimeout(_PROBE_SECONDS / 3)
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
