"""Commands on topics.

topics   create, list, describe, alter, delete, lag
produce  produce
join     join
records  tail, export, import
"""
