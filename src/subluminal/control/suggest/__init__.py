"""`sub policy suggest`: a least-privilege policy out of what agents did, and beside it what it refuses and admits.

    gathering   the ledger, bundles and transcripts as runs      tokens     places of people and projects made general
    evidence    tools, arguments and values, by distinct runs    limits/    what an argument may be: one kind a file
    drafting    evidence to rules: `above` all that was learned (`catalogue`), `tool_rules`, `amounts`
    judging     the real engine over runs                        near_miss  calls beside the ones that were seen
    fitting     learn on older runs, widen, prove on newer       wording, cases, against: what is written

A value counts by the distinct runs that used it, never by calls: one run may repeat itself a thousand times. Nothing
below `SUPPORT` runs is learned, and whatever fewer runs did never widens a limit; so what an attacker did in one run or
two is not in the policy. What was done in `SUPPORT` runs is.
"""

# Distinct runs. One may be an accident and two a pair; three are a habit.
SUPPORT = 3
