"""A provider to practise on: it speaks Stripe's refund calls, keeps Stripe's promises and breaks on demand.

It runs as a process of its own with a database of its own. Nothing here imports the rest of the project
and nothing there imports this: they meet on the wire, as strangers do.

    python -m sandbox --port 0 --database sandbox.sqlite3

Reading order: wire (what arrives, what leaves) → errors → forms → store → keys → faults → refunds → effects →
payables → actions → events → arrivals → control → provider (where they meet) → http1 → server (the socket) → mail.
"""
