"""`sub run --model-api`: the door before the model's API, for the time of a run.

routes    what a program must be told, so that it asks at our address; where its requests went before
claude    the same for Claude Code, whose settings stand over its environment
codex     the same for Codex, which is told on its command line
door      `sub proxy messages` as a process beside the command
"""
