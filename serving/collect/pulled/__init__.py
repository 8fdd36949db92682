"""Sources from which the collector fetches events itself: `[collect.pull.NAME]`.

The collector connects to a source again and again; each connection is a visit. A source's position
is written after the broker has acknowledged the events before the position. So a collector that
continues from the position loses no events. Read in this order:

- source.py: a declared source, and the checks of its declaration
- tls.py: the certificate authorities by which a source's certificate is checked
- source_protocol.py: the interface through which a visit delivers events, and the stored position
  before which all events are acknowledged
- kinds.py: a visit to a source, by kind: a stream, a document or a websocket
- mqtt.py: a visit to an MQTT server
- pull.py: the repeated visits to one source, and the tasks for all sources
"""

__all__ = ["source"]
