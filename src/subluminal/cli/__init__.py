"""The operator's commands, one file per group; `main` loads each lazily, `output` renders.

Rules: data on stdout, messages on stderr, `--json` everywhere, a clear sentence and exit code for bad input.
"""
