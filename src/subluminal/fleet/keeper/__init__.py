"""The keeper: the one process of a joined machine that speaks with the fleet (`sub fleet keep`).

It runs beside ledgerd, which starts it when the home has joined and ends it with itself. Each task has a thread:

    class Task(Protocol):
        name: str
        def step(self) -> float: ...    do a little, and say in how many seconds to come again

A step that raises is logged and recorded in `state.json`; nothing that was laid is taken away because of it. A step
that does not return within STEP_LIMIT_S ends the keeper, and ledgerd starts a new one: so no origin can hold a machine
on an old state by answering slowly.

    keeper.py    threads, the lock (one keeper for each home), ending
    state.py     `state.json`: how each task fares
    tasks.py     which tasks there are
    refresh.py   policies;  stop.py: stops;  tampering.py: that somebody had altered what was laid
"""
