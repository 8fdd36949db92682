"""Boards: dashboards of the project's own, one file `boards/NAME.toml` each.

A board is a list of charts, each with a query. Its pages are in replay/page and serving/page. Read
in this order:

board      a board as its file declares it, or the mistake in the file
files      the boards of a project's folder
reads      the tables that a query reads, through the views that it names
drawn      the rows of an answer as a chart draws them
answers    the answers of all charts of a board, over one pinned snapshot
"""
