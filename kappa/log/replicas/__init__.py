"""Replicas: how many brokers a topic is kept by.

- replicated: a topic is made so that its records survive the loss of one broker
"""
