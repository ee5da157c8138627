"""A shell line as the programs it runs: what `args.command` asks. Nothing is run, expanded or looked up.

    line ──> lines (grammar) ──> words (quotes, expansions) ──> programs (wrappers, nested lines) ──> findings

Two rules hold everywhere. What bash, zsh and POSIX sh would not all read alike, or what only the running shell knows, is
a doubt and never a guess. Time and memory are linear in the line, and recursion ends at a fixed depth.
"""
