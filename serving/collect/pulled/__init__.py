"""Sources whose events the collector fetches itself: `[collect.pull.NAME]`.

A source's position is written down once the broker has acknowledged the events before the position,
so a collector that continues there leaves nothing out. In reading order:

- source.py: a declared source, and the reasons to refuse a declaration
- tls.py: the trust in a source's certificate
- visitor.py: the visitor of a source, and the place up to which the source's events are
  acknowledged, on the disk
- kinds.py: a visit to a source, by kind: a stream, a document or a websocket
- mqtt.py: a visit to a server of MQTT
- pull.py: a source that is visited again and again, and all sources
"""

__all__ = ["source"]
