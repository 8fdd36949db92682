"""Development of a project: the loop of `kappa dev`, and the tests of `kappa test`.

This package runs pipelines on samples. All data of a run are in a scratch root, which no other
command uses. The package appends nothing to a journal, and changes no topic and no build. Read the
modules in this order:

    sample        records of a topic, or the project's sample events of the topic
    row_changes   the rows that a change adds, removes and changes
    sample_runs   a run of the project on its samples, compared with the last successful run
    run_text      formats the result of a run as lines of text
    child         the scratch folder, and the child process with Spark
    loop          runs the project at each save or key press, and watches its files
    cases         files of a project with events, and with the rows expected from them
    suite         runs all tests of a project, on one Spark session
"""

__all__ = ["child", "loop", "row_changes", "run_text", "sample", "sample_runs", "suite"]
