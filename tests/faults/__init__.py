"""A server of broken and odd HTTP answers on the loopback, each under its name: `/fault/NAME`.

    python -m tests.faults --port 8001          by hand; prints the address and the names
    with serve() as server: ...                 in tests; server.url, server.asked

`table.py` says for each name what is sent and what trawl must make of it, `answers.py` how the bytes are put
together, `server.py` sends them. The names are those of shared/cases.md and of the rig's `hostile` web, and more.
"""
