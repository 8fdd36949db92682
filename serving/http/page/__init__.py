"""The page as text: the templates, and the files that a browser loads.

The package answers no request and reads no table, and only turns values into HTML. Read in this
order:

- render.py: renders a template, with the headers of a page; the only door to Jinja2.
- marks.py: the texts of numbers, times and values.
- templates/: a file per page; base.html, frame.html and parts.html are shared.
- static/: styles and scripts; static/vendor/ is the chart library.
"""

__all__ = ["marks", "render"]
