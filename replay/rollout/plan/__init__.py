"""The plan: the actions of a deploy, their reasons and costs, and the reasons to refuse them.

Planning changes only caches, and appends nothing to the journal. stage.py begins the rollouts of a
plan. If a fact cannot be obtained, the plan omits this fact; a missing fact is never a reason to
refuse a step. Read the modules in this order:

    plan                 the data classes of a plan, its steps and its refusals
    facts                the data classes of the facts on which a plan is based
    observe              gathers the facts: files, journal, log and disk
    declared_pipelines   the pipelines as the project's files declare them, without a broker
    validate             refusals that follow from the files alone
    make_plan            makes a plan from the facts, with notes on its steps
    preflight            findings that refuse a step or inform the operator; cycles of pipelines
    finding              a finding, and the findings that the operator allows
    branch               where a branch may begin
    retry                the plan that begins an ended rollout again
    plan_text            a plan as text, as rows, and as JSON
    saved_plan           a plan in a file, which is refused if it is stale

The modules preflight and make_plan use:

    cost                 records, bytes, disk and time of a replay
    log_sample           a sample of a log, and whether its records can be read as declared
    determinism          the lint: code that may give other rows in a replay
    code_diff            the changes to the code, as a diff
    schema_changes       the changes to tables that readers see, and to the fields of events
"""

__all__ = [
    "branch",
    "code_diff",
    "declared_pipelines",
    "facts",
    "finding",
    "log_sample",
    "make_plan",
    "observe",
    "plan",
    "plan_text",
    "preflight",
    "retry",
    "saved_plan",
    "schema_changes",
    "validate",
]
