"""What runs all of it on one machine with nothing installed: PostgreSQL, a queue in a folder, a supervisor.

For the demo and the tests. In production all three are somebody else's: DATABASE_URL and BROKER_URL
name real servers, and the machine's own service manager starts the processes.
"""
