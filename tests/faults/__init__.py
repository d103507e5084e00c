"""What hookline does under failure, counted: run by `scripts/dev/faults`, no tests.

Each part is a module that does something unkind many times, looks at what is left each time, and
yields figures; those that are an invariant must be 0. `invariants.py` has the looks, and
tests/test_faults.py shows each of them a broken chat.
"""
