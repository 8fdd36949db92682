"""Protobuf's messages, with or without the framing of a schema registry.

Read in this order:

- `proto_text.py`: the text of a .proto file, as a description of it.
- `proto_schema.py`: messages by their descriptions, and by the indexes of a frame.
- `message_columns.py`: what each field of a message lands as.
- `protobuf_events.py`: the format, and its reader.
- `message_loops.py`: the compiled loops for many messages at once.
"""
