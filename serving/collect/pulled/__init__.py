"""Sources whose events the collector fetches itself: `[collect.pull.NAME]`.

A source's position is written down once the broker has acknowledged what came before it, so a
collector that goes on there leaves nothing out. In reading order:

- source.py: a source as it is declared, and why it may not be so
- position.py: the place up to which its events are acknowledged, on the disk
- tls.py: the trust in its certificate
- http_get.py: one GET over HTTP, read as it comes
- sse_lines.py: the events of a stream of server-sent events
- document.py: the events of a polled document
- kinds.py: one visit at a source, by its kind
- pull.py: a source that is visited again and again, and all of them
"""
