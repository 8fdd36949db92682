"""The files of properties that the broker starts with: Kafka's settings, and log4j's. Pure.

Kafka's settings: https://kafka.apache.org/documentation/#configuration
"""

from __future__ import annotations

from pathlib import Path

HOST = "127.0.0.1"


def server_properties(data: Path, port: int, controller_port: int, *, syncs: bool) -> str:
    """Returns Kafka's settings for a data folder and two ports.

    If the broker `syncs`, acknowledged records survive a power loss: nobody else has a copy.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        # Topics are declared; a typing error must not make a topic.
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a crash the broker is back only when its old session has ended: 9 s by default.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        # The default of 128 MB would be a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        **({"log.flush.interval.messages": "1"} if syncs else {}),
    }
    # Java's properties files take a backslash as an escape, so a backslash is doubled.
    return "".join(
        f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()
    )


def java_text(text: str) -> bytes:
    """Returns a properties file in the encoding of java.util.Properties.

    Java reads the file as Latin-1, and takes all other characters from escapes of UTF-16.
    """
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(pair) for pair in zip(units[::2], units[1::2], strict=True))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes).encode("ascii")


def log4j2_properties(log_file: Path) -> str:
    """Returns log4j's settings: four files of 20 MB, beginning with `log_file`."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
