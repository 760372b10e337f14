"""python -m sandbox --port 0 --database PATH [--key-window SECONDS] [--ignore-keys] [--mail-port 0] [--host …]"""

import argparse
import asyncio
import signal
import sqlite3
import sys
from pathlib import Path

from sandbox.provider import Provider
from sandbox.server import Server

DAY = 86_400.0  # seconds: Stripe may prune a key once it is "at least 24 hours old"


def main() -> int:
    try:
        asyncio.run(_serve(_options()))
    except (OSError, sqlite3.Error) as trouble:
        print(f"sandbox cannot start: {trouble}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT. What hangs at that moment ends with us, as if it had been killed."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    provider = Provider(options.database, key_window=options.key_window, ignore_keys=options.ignore_keys)
    url = await Server(provider).listen(options.host, options.port)
    print(f"sandbox listening on {url}", flush=True)
    if options.mail_port is not None:
        print(
            f"sandbox takes mail at {await provider.mail.listen(options.host, options.mail_port)}", flush=True
        )
    await stop.wait()
    await provider.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description="A provider to practise on.")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    add("--port", type=int, required=True, help="0 for any free one: the first line of output tells which")
    add("--database", type=Path, required=True, help="SQLite file, made if absent")
    add("--key-window", type=_seconds, default=DAY, metavar="SECONDS", help="how long a key is kept (24 h)")
    add("--ignore-keys", action="store_true", help="be a provider without idempotency: every create executes")
    add("--mail-port", type=int, help="take mail there; 0 for any free port: the second line tells which")
    return parser.parse_args()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("a window is zero seconds or more")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
