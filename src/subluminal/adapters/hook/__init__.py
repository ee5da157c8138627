"""The door of a client's own tools: its hooks ask, and a resident judge answers.

    hook command (command, client.c)  ─>  judge (judge: a socket and a loop)  ─>  calls  ─>  the gate
                                          payload reads what a client says, answers writes what it must hear

A client starts the hook command before and after each call. The command finds the judge of the client's process, hands
over what it was given, and prints the answer; it knows nothing of any client. The first one starts the judge (`start`),
which has one producer, and ends with the client.
"""
