"""The operator's commands, one folder per group. `main` has the table of them and loads each when it is used, `light`
starts the quick ones without click, `render` draws. What is not about the terminal lives below, in `runs` or `doctor`.

Rules: data on stdout, messages on stderr, `--json` everywhere, a clear sentence and exit code for bad input.
"""
