"""Where decisions of many machines are kept: ClickHouse or Postgres, behind one set of questions (`base`).

Rules: at least once in, once under the view: whatever is committed twice is there once, and lines that contradict each
other stay visible. Every question is about one tenant, which its caller knows from a credential. Blocking: whoever runs
a loop asks from a thread. Imported by `fleet/collector`, `bench` and tests.
"""
