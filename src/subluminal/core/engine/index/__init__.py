"""Which of many rules a call's arguments can match at all, found by what the rules compare.

A plan with many rules that look at arguments asks `rules.RuleIndex` first. It answers with every rule that might
match or might not be judged; the rules it leaves out are those of which one predicate is certainly false, which decides
the rule (`certainty`). Those it names are judged as if there were no index: what a rule means has one home, and a group
here only has to name too many rather than too few.
"""
