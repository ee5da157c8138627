"""`sub ui --fleet`: the page over a collector, served here on loopback by a process that ends with its terminal.

    record.py    what the page asks (`ledger.http.record`), asked of the collector; runs are folded here (`folded`)
    live.py      calls as they arrive, while somebody looks
    threads.py   questions that may hang, without the process hanging with them
    serving.py   the server: the guard, sessions and files of the page on one machine

The collector's token stays in this process: the browser never has it.
"""
