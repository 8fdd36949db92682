"""The values that each page shows. Templates are in serving/page."""
