import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import environ
import psutil
import psycopg
import pytest

from config.embedded import postgres
from config.embedded.errors import AlreadyRunning, UnusableDatabase
from config.embedded.postgres import Server

PATIENCE = 60.0  # seconds; far more than anything here takes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with postgres.start(tmp_path_factory.mktemp("a 100% odd+folder's name") / "postgres") as server:
        yield server


def test_it_answers_at_its_address_with_durable_settings(server: Server) -> None:
    settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200"}

    assert {name: ask(server.url(), f"SHOW {name}") for name in settings} == settings
    assert ask(server.url(), "SHOW listen_addresses") == ""


def test_its_address_means_the_same_to_the_settings(server: Server) -> None:
    parsed = environ.Env.db_url_config(server.url("postgres"))

    with psycopg.connect(dbname=parsed["NAME"], user=parsed["USER"], **parsed["OPTIONS"]) as connection:
        assert connection.info.host == str(server.directory)


def test_a_database_is_made_once(server: Server) -> None:
    server.create_database("orders")
    server.create_database("orders")

    assert ask(server.url("orders"), "SELECT current_database()") == "orders"


def test_text_sorts_by_code_point_whatever_the_machine_speaks(server: Server) -> None:
    assert (
        ask(server.url(), "SELECT string_agg(x, '' ORDER BY x) FROM unnest('{b,ä,A,B,a}'::text[]) x")
        == "ABabä"
    )


@pytest.mark.parametrize("immediate", [True, False])
def test_what_was_committed_survives_a_restart(server: Server, *, immediate: bool) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        before = ask(server.url(), "SELECT count(*) FROM kept")
        first_pid = server.pid
        server.restart(immediate=immediate)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    assert server.pid != first_pid
    assert ask(server.url(), "SELECT count(*) FROM kept") == before


def test_it_starts_again_after_everything_was_killed_and_its_number_belongs_to_a_stranger(
    server: Server,
) -> None:
    kill(server)
    lines = (server.directory / "postmaster.pid").read_text().splitlines()
    (server.directory / "postmaster.pid").write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

    server.start()

    assert ask(server.url(), "SELECT 1") == 1


def test_a_zombie_does_not_count_as_running(server: Server) -> None:
    process = psutil.Process(server.pid)
    kill(server)

    assert process.status() == psutil.STATUS_ZOMBIE
    assert postgres.running_in(server.directory) == []
    server.start()
    assert ask(server.url(), "SELECT 1") == 1


def test_a_second_server_on_the_same_folder_is_refused_and_told_who_has_it(server: Server) -> None:
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()} "):
        postgres.start(server.directory)


def test_a_half_made_folder_is_made_anew(tmp_path: Path) -> None:
    unfinished = tmp_path / "postgres.unfinished"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")

    with postgres.start(tmp_path / "postgres", durable=False) as server:
        assert ask(server.url(), "SELECT 1") == 1
    assert not unfinished.exists()


def test_a_folder_of_another_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("13\n")

    with pytest.raises(UnusableDatabase, match=r"found: 13.*make reset"):
        postgres.start(tmp_path / "postgres")


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 30) / "postgres"

    with postgres.start(deep, durable=False) as server:
        sockets = postgres.socket_directory(deep)
        assert sockets != deep
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert ask(server.url(), "SELECT 1") == 1
        assert ask(postgres.url(deep, "postgres"), "SELECT 1") == 1
    assert not sockets.exists()


@pytest.mark.parametrize("odd", ["a,b", 'a"b'])
def test_a_path_that_a_socket_address_cannot_carry_gets_another(odd: str) -> None:
    assert odd not in str(postgres.socket_directory(Path("/srv") / odd / "postgres"))


def test_a_stand_in_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("open" * 30) / "postgres"
    sockets = postgres.socket_directory(deep)
    sockets.mkdir()
    sockets.chmod(0o777)
    (sockets / "theirs").touch()
    try:
        with pytest.raises(UnusableDatabase, match="open to others"):
            postgres.start(deep, durable=False)
    finally:
        shutil.rmtree(sockets)


def test_it_ends_with_the_process_that_started_it_and_starts_at_once_for_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "postgres"
    owner = python(
        f"""
        import signal
        from pathlib import Path
        from config.embedded import postgres
        server = postgres.start(Path({str(directory)!r}), durable=False)
        print("started", flush=True)
        signal.pause()
        """
    )
    assert owner.stdout and owner.stdout.readline() == "started\n"
    first = postgres.running_in(directory)
    owner.kill()
    owner.wait()

    with postgres.start(directory, durable=False) as server:
        assert ask(server.url(), "SELECT 1") == 1
        assert not set(first) & set(postgres.running_in(directory))
    owner.stdout.close()
    assert postgres.running_in(directory) == []


def ask(address: str, question: str) -> object:
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    return row and row[0]


def kill(server: Server) -> None:
    """SIGKILL to the master, which stays unreaped; its children end by themselves."""
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not postgres.running_in(server.directory))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.01)


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
