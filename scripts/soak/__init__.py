"""Parts of scripts/soak.sh: a forwarder under load, under verification and under faults, for hours.

| module | what lives there |
|---|---|
| `__main__` | command line, the order of the rounds, the table at the end |
| `material` | tables, update streams and captures, from a seed |
| `process` | one process: its threads, its memory, signals, an end within a limit |
| `judge` | the checks that a replay's report must pass |
| `device`, `datapath`, `threads`, `memory`, `inputs` | the rounds, by what fails |

A round is a function of a `Round`, named in its module's `ROUNDS`; it raises `Failed` or returns a few words for its line. All its
random numbers come from the round's seed, so that a failing round can be run again. Only the standard library is used.
"""
