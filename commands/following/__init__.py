"""Commands of what follows a served table.

changes  its rows, then each net change
outlets  sinks: how far each is
alerts   alerts list, alerts retry
"""
