"""Producers that stay open: each record's acknowledgement is reported as it arrives.

The room sends bytes, and decides nothing about events. It has one file:

- live_producer.py: records of many senders, and the place in the log that each has got
"""
