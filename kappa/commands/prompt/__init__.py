r"""The SQL prompt of `kappa shell`: statements and backslash commands on a pinned snapshot.

Read the modules in this order:

shell        the loop: what is typed is answered, and every error survived; `\d`
answers      answers as tables, expanded rows, or files, and the pager
completion   the names that fit at the cursor
editor       the line editor: history, keys, colours
"""
