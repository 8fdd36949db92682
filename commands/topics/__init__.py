"""Commands on topics.

topics   create, list, describe, alter, delete, lag
produce  produce
records  tail, export, import
"""
