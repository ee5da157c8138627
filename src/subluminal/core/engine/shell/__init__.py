"""A shell line as the programs it runs: what `args.command` asks. Nothing is run, expanded or looked up.

    lines         lists and simple commands; compounds, redirections, gaps (blanks, here-documents)
    words         quotes and substitutions; expansions; word: what is known of one
    programs      the words of a command as programs: options (of wrappers), builtins
    findings      the programs of the line, and every doubt about it

Two rules hold everywhere. What bash, zsh and POSIX sh would not all read alike, or what only the running shell knows,
is a doubt and never a guess. Time and memory are linear in the line, and recursion ends at a fixed depth.
"""
