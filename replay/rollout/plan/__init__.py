"""The plan: what a deploy would do, why, what it costs, and what refuses it.

Planning changes nothing but caches, and appends nothing to the journal; stage.py begins what a plan
shows. A fact that cannot be had is absent, and refuses nothing. Read in this order:

    plan             a plan, its steps and its refusals: values
    validate         what the files alone refuse
    observed         the facts of a plan; `declared`: pipelines by their files, without a broker
    observe          gathers the facts: files, journal, log and disk
    make_plan        facts to a plan
    judge            what blocks a step, and what is let through
    notes            what should be known of a step
    outlet_notes     what a switch sends by sinks and alerts
    circles          pipelines that read, through sinks, what they change themselves
    branch           where a branch may begin
    overlay          whether the tables that serve have the rows already
    retry            the plan that begins an ended rollout again
    plan_text        a plan for people and machines

The obstacles to a replay in code, log and cost:

    finding          a finding, and what lets one through
    sinks            the topics that sinks go to
    subjects         the subjects that are pinned, and their newest versions
    preflight        what the log can no longer give, or not in time
    replication      what one broker's loss would take
    cost             records, bytes, disk and time of a replay
    sample           a sample of a log; `readable`: whether its records can be read as declared
    determinism      the lint: what may give other rows in a replay; `doubts`: names that it knows

The changes of a new version:

    code_diff        what changed in the code, as a diff
    readers          what changes for readers
    event_changes    what becomes of the fields of events
"""
