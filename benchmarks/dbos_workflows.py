"""What DBOS does with the same: a workflow per operation under its own id, with one step that does nothing.

Runs by itself in an environment of its own, which has DBOS and none of the product:
``python dbos_workflows.py DATABASE_URL COUNT IN_FLIGHT`` prints the workflows completed in a second.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSConfig, SetWorkflowID


def _effect(number: int) -> str:
    return f"ref_{number}"


_step = DBOS.step()(_effect)


def _operation(number: int) -> str:
    return str(_step(number))


_workflow = DBOS.workflow()(_operation)


def _run(key: str, number: int) -> str:
    with SetWorkflowID(key):
        return str(_workflow(number))


def main(url: str, count: int, in_flight: int) -> float:
    """Workflows a second, each called to its end by one of so many threads; the first fifty do not count."""
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": url,
        "sys_db_pool_size": in_flight + 4,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    label = os.urandom(4).hex()
    with ThreadPoolExecutor(in_flight) as threads:
        list(threads.map(lambda n: _run(f"{label}-warm-{n}", n), range(50)))
        began = time.perf_counter()
        answers = list(threads.map(lambda n: _run(f"{label}-{n}", n), range(count)))
        took = time.perf_counter() - began
    assert len(set(answers)) == count
    DBOS.destroy()
    return count / took


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
