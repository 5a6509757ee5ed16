# SPDX-License-Identifier: Apache-2.0
"""What happens to kvshm-bench replay from outside: bench_interrupt.py server|SIGNAL TRACE.

Starts a replay; when its servers run, kills one of them, or sends the signal to their parent. It must end as it says
in its manual, with no arena and no process left.
"""
import os
import signal
import subprocess
import sys
import time


def children(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(name))
    return found


what, trace = sys.argv[1:]
bench = subprocess.Popen(
    ["kvshm-bench", "replay", "--procs=3", "--frames=2000", trace],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
)
servers = []
while len(servers) < 3 and bench.poll() is None:
    servers = children(bench.pid)
assert len(servers) == 3, (servers, bench.communicate())
if what == "server":
    os.kill(servers[1], signal.SIGKILL)
    wanted = 1
else:
    number = getattr(signal, what)
    os.kill(bench.pid, number)
    wanted = -number
out, err = bench.communicate()
print(bench.returncode, out, err)
assert bench.returncode == wanted, bench.returncode
assert out == ""
assert ("was ended by signal 9" in err) if what == "server" else (err == "")
assert os.listdir(os.environ["KVSHM_DIR"]) == []
for server in servers:
    until = time.monotonic() + 120
    while os.path.exists(f"/proc/{server}"):
        assert time.monotonic() < until, server
        time.sleep(0.001)
