"""Sources from which the collector fetches events itself: `[collect.pull.NAME]`.

A source's position is written after the broker has acknowledged the events before the position. So
a collector that continues from the position loses no events. Read in this order:

- source.py: a declared source, and the reasons to refuse a declaration
- tls.py: the certificate authorities by which a source's certificate is checked
- source_protocol.py: the interface for handing on a source's events, and the stored position up to
  which they are acknowledged
- kinds.py: a visit to a source, by kind: a stream, a document or a websocket
- mqtt.py: a visit to an MQTT server
- pull.py: a source that is visited repeatedly, and all sources
"""

__all__ = ["source"]
