"""Sources whose events the collector fetches itself: `[collect.pull.NAME]`.

A source's position is written down once the broker has acknowledged the events before the position,
so a collector that continues there leaves nothing out. In reading order:

- source.py: a declared source, and the reasons to refuse a declaration
- position.py: the place up to which a source's events are acknowledged, on the disk
- tls.py: the trust in a source's certificate
- http_get.py: a GET over HTTP, read as the answer arrives
- sse_lines.py: the events of a stream of server-sent events
- document.py: the events of a polled document
- kinds.py: a visit to a source, by kind
- pull.py: a source that is visited again and again, and all sources
"""
