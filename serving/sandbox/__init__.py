"""SQL of strangers, each query in a process of its own."""
