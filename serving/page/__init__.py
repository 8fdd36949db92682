"""The page as text: templates, marks, and the files a browser gets."""
