"""Pages as text: the templates, and the files that a browser loads.

The package turns values into HTML, and reads no tables. The only requests that it answers are those
for the files that pages load. Read in this order:

- render.py: renders a template, with the headers of a page; the only module that uses Jinja2.
- formatting.py: formats numbers, times and values.
- templates/: a file per page; base.html, frame.html and parts.html are shared.
- static/: styles and scripts; static/vendor/ is the chart library.
"""

__all__ = ["formatting", "render"]
