r"""The SQL prompt of `kappa shell`: statements and backslash commands on a pinned snapshot.

Read the modules in this order:

- shell: the loop, which answers each text and continues after every error; descriptions of tables
- answers: answers as tables, expanded rows or files, and the pager
- completion: the names that can complete the word at the cursor
- editor: the line editor, with history, keys and colours
"""
