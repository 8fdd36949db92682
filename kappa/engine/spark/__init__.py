"""Spark sessions: how a JVM is started, and what Spark's plans say."""
