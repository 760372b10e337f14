import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from config.embedded.errors import AlreadyRunning, NotReady, PortBusy
from config.embedded.ports import accepts_connections, require_free_port
from config.embedded.postgres import Server
from config.embedded.processes import Program
from config.embedded.supervisor import FIRST_BACKOFF, Supervisor

PATIENCE = 60.0  # seconds; far more than anything here takes


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path, announce=Announcements(tmp_path)) as supervisor:
        yield supervisor


def test_programs_are_ready_when_start_returns_and_have_a_log_and_a_number(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    supervisor.start(greeter("one", tmp_path), greeter("two", tmp_path))

    for name in ("one", "two"):
        assert (tmp_path / "log" / f"{name}.log").read_text() == f"{name} is here\n"
        assert (tmp_path / "run" / f"{name}.pid").read_text() == f"{supervisor.pid(name)}\n"
        assert alive(supervisor.pid(name))


def test_a_program_that_ends_before_it_is_ready_shows_its_last_words(supervisor: Supervisor) -> None:
    broken = Program(name="web", command=python("print('no such table'); raise SystemExit(3)"), ready=never)

    with pytest.raises(NotReady, match=r"(?s)web ended with exit code 3 before it was ready.*no such table"):
        supervisor.start(broken)


def test_a_program_that_is_silent_for_too_long_is_not_waited_for(supervisor: Supervisor) -> None:
    silent = Program(name="web", command=["sleep", "60"], ready=never, ready_within=0.2)

    with pytest.raises(NotReady, match=r"web was not ready within 0.2 seconds"):
        supervisor.start(silent)


def test_a_child_that_dies_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(greeter("worker", tmp_path), greeter("other", tmp_path))
    first, other = supervisor.pid("worker"), supervisor.pid("other")
    os.kill(first, signal.SIGKILL)

    supervisor.watch(until=lambda: supervisor.pid("worker") != first and said(tmp_path, "worker") == 2)

    assert supervisor.pid("other") == other
    assert (tmp_path / "run" / "worker.pid").read_text() == f"{supervisor.pid('worker')}\n"
    assert "worker was ended by SIGKILL" in announced(tmp_path)


def test_what_a_dead_child_had_started_itself_does_not_outlive_it(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    supervisor.start(stubborn_family(tmp_path))
    grandchild = int((tmp_path / "grandchild").read_text())
    os.kill(supervisor.pid("family"), signal.SIGKILL)

    supervisor.watch(until=lambda: not alive(grandchild))


def test_a_database_that_is_killed_comes_back_on_the_same_address(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    server = Server(tmp_path / "postgres", durable=False)
    supervisor.start(server.program())
    os.kill(supervisor.pid("postgres"), signal.SIGKILL)

    supervisor.watch(until=lambda: "postgres runs again" in announced(tmp_path) and server.answers())


def test_a_child_that_keeps_dying_is_started_ever_more_slowly(supervisor: Supervisor, tmp_path: Path) -> None:
    record = f"import time; print(time.monotonic(), file=open({str(tmp_path / 'starts')!r}, 'a'))"
    supervisor.start(Program(name="hasty", command=python(record)))

    supervisor.watch(until=lambda: len(starts(tmp_path)) == 4)

    pauses = [later - earlier for earlier, later in zip(starts(tmp_path), starts(tmp_path)[1:], strict=False)]
    for doubling, pause in enumerate(pauses):
        assert pause >= FIRST_BACKOFF * 2**doubling


def test_nothing_is_left_of_a_child_that_is_stopped_or_deaf(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        supervisor.start(greeter("frozen", tmp_path), stubborn_family(tmp_path))
        family = [
            supervisor.pid("frozen"),
            supervisor.pid("family"),
            int((tmp_path / "grandchild").read_text()),
        ]
        os.kill(family[0], signal.SIGSTOP)
        assert all(map(alive, family))

    assert not any(map(alive, family))
    assert list((tmp_path / "run").iterdir()) == []


def test_an_error_in_the_block_ends_the_children_too(tmp_path: Path) -> None:
    def migrate_badly() -> None:
        with Supervisor(tmp_path) as supervisor:
            supervisor.start(greeter("web", tmp_path))
            pids.append(supervisor.pid("web"))
            raise RuntimeError("A migration failed.")

    pids: list[int] = []
    with pytest.raises(RuntimeError, match="migration"):
        migrate_badly()

    assert not alive(pids[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_supervisor_quietly_and_everything_with_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    process, family = start_elsewhere(tmp_path)
    os.kill(family[0], signal.SIGSTOP)

    process.send_signal(number)

    assert process.communicate(timeout=PATIENCE) == ("stopped\n", "")
    assert process.returncode == 0
    assert not any(map(alive, family))


def test_a_second_signal_does_not_cut_the_stopping_short(tmp_path: Path) -> None:
    process, family = start_elsewhere(tmp_path)

    for _ in range(50):
        process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=PATIENCE) == ("stopped\n", "")
    assert not any(map(alive, family))


def test_a_signal_during_a_start_leaves_nothing_behind(tmp_path: Path) -> None:
    process = elsewhere(
        f"""
        with Supervisor(folder) as supervisor:
            print("starting", flush=True)
            supervisor.start({SILENT})
        """,
        tmp_path,
    )
    assert process.stdout
    assert process.stdout.readline() == "starting\n"
    wait_until((tmp_path / "run" / "silent.pid").exists)

    process.terminate()

    assert process.communicate(timeout=PATIENCE) == ("stopped\n", "")
    assert not psutil.pid_exists(process.pid) or not psutil.Process(process.pid).children()


def test_a_supervisor_that_is_killed_takes_its_children_along(tmp_path: Path) -> None:
    process, (frozen, child, grandchild) = start_elsewhere(tmp_path)
    os.kill(frozen, signal.SIGSTOP)

    process.kill()
    process.communicate()

    wait_until(lambda: not alive(frozen) and not alive(child))
    os.kill(grandchild, signal.SIGKILL)  # its own parent's business


def test_a_second_supervisor_in_the_same_folder_is_refused(supervisor: Supervisor, tmp_path: Path) -> None:
    with pytest.raises(
        AlreadyRunning, match=rf"The demo is already running.*process {os.getpid()} .*VAR_DIR="
    ):
        Supervisor(tmp_path).__enter__()


def test_a_folder_is_free_again_after_its_supervisor(tmp_path: Path) -> None:
    for _ in range(2):
        with Supervisor(tmp_path):
            pass


def test_a_busy_port_is_named_with_the_variable_that_changes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortBusy, match=rf"Port {port} on 127.0.0.1 is in use.*WEB_PORT="):
            require_free_port(port, variable="WEB_PORT")
        assert accepts_connections(port)

    require_free_port(port, variable="WEB_PORT")
    assert not accepts_connections(port)


class Announcements:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "announcements"

    def __call__(self, text: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{text}\n")


def announced(folder: Path) -> str:
    file = folder / "announcements"
    return file.read_text() if file.exists() else ""


def greeter(name: str, folder: Path) -> Program:
    """Says that it is here, and waits for ever."""
    code = f"import signal; print('{name} is here', flush=True); signal.pause()"
    return Program(name=name, command=python(code), ready=lambda: said(folder, name) > 0)


def stubborn_family(folder: Path) -> Program:
    """A shell that ignores SIGTERM, with a child that does so too."""
    script = "trap '' TERM; sleep 600 & echo $! > number; mv number grandchild; wait"
    return Program(
        name="family",
        command=["sh", "-c", script],
        directory=folder,
        ready=(folder / "grandchild").exists,
        grace=0.3,
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def never() -> bool:
    return False


def said(folder: Path, name: str) -> int:
    return (folder / "log" / f"{name}.log").read_text().count(f"{name} is here\n")


def starts(folder: Path) -> list[float]:
    file = folder / "starts"
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.01)


SILENT = 'Program(name="silent", command=["sleep", "600"], ready=lambda: False)'


def start_elsewhere(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A supervisor in a process of its own; returns it with the numbers of a child and a stubborn family."""
    process = elsewhere(
        """
        with Supervisor(folder) as supervisor:
            supervisor.start(greeter("frozen", folder), stubborn_family(folder))
            print(supervisor.pid("frozen"), supervisor.pid("family"), flush=True)
            supervisor.watch()
        """,
        folder,
    )
    assert process.stdout
    return process, [*map(int, process.stdout.readline().split()), int((folder / "grandchild").read_text())]


def elsewhere(code: str, folder: Path) -> subprocess.Popen[str]:
    head = f"""\
        from pathlib import Path
        from config.embedded.processes import Program
        from config.embedded.supervisor import Supervisor
        from tests.embedded.test_supervisor import greeter, stubborn_family
        folder = Path({str(folder)!r})
        """
    script = textwrap.dedent(head) + textwrap.dedent(code) + 'print("stopped")\n'
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
