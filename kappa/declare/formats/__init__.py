"""The formats that a topic may declare: those of kappa/formats, all together, in `named.py`."""
