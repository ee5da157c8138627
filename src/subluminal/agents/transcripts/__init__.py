"""What Claude Code and Codex keep on disk of their sessions, read as tool calls: both are for their own use and have no
contract, so an unknown line is passed over and counted, and nothing in a file can stop the reading of the next.

    found      where they lie, and which are wanted      reading    one file, plain or compressed, in bounded memory
    claude     lines of Claude Code                      codex      lines of Codex
"""
