"""How tests start MPI jobs: with Forebay's MPI-IO preloaded, few ranks, a scratch folder."""
import contextlib
import json
import os
import socket
import subprocess
import threading
import time


def environment():
    env = dict(os.environ)
    # As root Open MPI wants to be told twice; an ordinary user is not bothered by it.
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_btl_base_warn_component_unused="0",
               # Two ranks would be bound to a core each and wait awake, whoever else is there.
               OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_hwloc_base_binding_policy="none")
    for name in list(env):
        if name.startswith("FOREBAY_"):
            del env[name]
    return env


def command(mpi, ranks, preload, words, variables=None):
    """The words that start a job. `preload`: libraries, ours first. MPICH waits awake, so with several
    ranks it also gets the library that makes it yield."""
    variables = dict(variables or {})
    if preload:
        variables["LD_PRELOAD"] = ":".join(preload)
    if mpi == "mpich":
        start = ["mpiexec.mpich", "-n", str(ranks)]
        for name, value in variables.items():
            start += ["-genv", name, value]
    else:
        start = ["mpiexec.openmpi", "--oversubscribe", "-n", str(ranks)]
        for name, value in variables.items():
            start += ["-x", f"{name}={value}"]
    return start + words


def libraries(build, mpi, ranks):
    ours = [os.path.join(build, "lib", f"libforebay-{mpi}.so")]
    if mpi == "mpich" and ranks > 1:
        ours.append(os.path.join(build, "lib", "libforebay-test-yield.so"))
    return ours


def between_nodes(mpi):
    """What an MPI has to be told if ranks of one machine are to look like ranks of several. MPICH
    works so too, but that its MPI_Finalize does not always return (UCX over TCP)."""
    if mpi == "mpich":
        return {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
    return {"OMPI_MCA_btl": "tcp,self"}


@contextlib.contextmanager
def nodes(count, run_dirs=()):
    """Name spaces of processes, each of which looks to us like a node of its own; needs root. Gives
    what makes the words of a job ones that deal its ranks out to them; `run_dirs`: and to these
    servers."""
    # They go with us, however we end.
    spaces = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount",
                                "--fork", "--mount-proc", "--kill-child", "sleep", "infinity"])
              for _ in range(count)]
    try:
        first = [first_process(space) for space in spaces]
        one_of = lambda names: (f"$(echo {' '.join(names)} | cut -d' ' -f$(("
                                "${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % " f"{len(names)} + 1)))")
        server = f"export FOREBAY_CLIENT_SERVER={one_of(run_dirs)}; " if run_dirs else ""
        script = (f"{server}pid={one_of(first)}; "
                  'exec nsenter --target "$pid" --pid --mount "$@"')
        yield lambda words: ["sh", "-c", script, "sh"] + words
    finally:
        for space in spaces:
            space.kill()
            space.wait()


def first_process(space):
    """The number, here, of the first process of a name space; once it has its own /proc."""
    for _ in range(1000):
        with open(f"/proc/{space.pid}/task/{space.pid}/children") as file:
            child = file.read().strip()
        if child and os.readlink(f"/proc/{child}/exe").endswith("sleep"):
            return child
        time.sleep(0.01)
    raise RuntimeError("cannot make a name space of processes")


def run(words, seconds, env=None, cwd=None):
    """Runs it; the whole group of processes goes if it takes too long."""
    job = subprocess.Popen(words, env=env or environment(), cwd=cwd, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = job.communicate(timeout=seconds)
        return job.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        output, _ = job.communicate()
        return -1, output + f"\n(killed after {seconds} s)"


def has_ended(pid):
    """Gone, with all its threads, or waiting for whoever is to bury it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


class Server:
    """A server of its own, of a folder in `scratch`; or several that know each other by a key."""

    def __init__(self, build, scratch, count=1):
        self.forebay = os.path.join(build, "bin", "forebay")
        self.data = os.path.join(scratch, "data")
        self.run_dirs = [os.path.join(scratch, f"run{i}") for i in range(count)]
        self.run_dir = self.run_dirs[0]
        self.more = [[] for _ in self.run_dirs]
        if count > 1:
            self.know_each_other(os.path.join(scratch, "key"))

    def know_each_other(self, key):
        taken = [socket.socket() for _ in self.run_dirs]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        addresses = [f"tcp:127.0.0.1:{one.getsockname()[1]}" for one in taken]
        for one in taken:
            one.close()
        self.forebay_must("key", "make", key)
        servers = ",".join(f"s{i}={address}" for i, address in enumerate(addresses))
        for i, address in enumerate(addresses):
            self.more[i] = ["--name", f"s{i}", "--listen", address, "--key-file", key, "--set",
                            f"cluster.servers={servers}", "--set", "cluster.patience=1min"]

    def forebay_must(self, *words):
        code, text = run([self.forebay, *words], 60)
        if code != 0:
            raise RuntimeError(f"forebay {' '.join(words)}: {text}")
        return text

    def start(self, number):
        self.forebay_must("start", self.data, "--run-dir", self.run_dirs[number],
                          *self.more[number])

    def __enter__(self):
        os.makedirs(self.data, exist_ok=True)
        for number in range(len(self.run_dirs)):
            self.start(number)
        return self

    def __exit__(self, *_):
        for run_dir in self.run_dirs:
            run([self.forebay, "stop", "--run-dir", run_dir], 60)

    def kill_and_start(self, number):
        with open(os.path.join(self.run_dirs[number], "server.json"), encoding="utf-8") as file:
            pid = json.load(file)["pid"]
        os.kill(pid, 9)
        while not has_ended(pid):  # its lock is free when it is gone; it is no child of ours
            time.sleep(0.01)
        self.start(number)

    @contextlib.contextmanager
    def killed_all_the_while(self, ready):
        """One after the other, every second or so, once there is a file `ready`. Gives a list with
        one entry for each."""
        over, kills, failed = threading.Event(), [], []

        def kill():
            while not over.wait(0.3 + len(kills) % 5 * 0.2):
                if not os.path.exists(ready):
                    continue
                kills.append(len(kills) % len(self.run_dirs))
                try:
                    self.kill_and_start(kills[-1])
                except (RuntimeError, OSError, ValueError) as error:
                    return failed.append(error)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield kills
        finally:
            over.set()
            thread.join()
        if failed:
            raise failed[0]

    def left_behind(self):
        """How many attributes the servers keep."""
        return sum(json.loads(self.forebay_must("status", "--json", "--run-dir", run_dir))
                   ["exports"][0]["state"]["attributes"] for run_dir in self.run_dirs)

    def sieved_writes(self):
        code, text = run([self.forebay, "status", "--json", "--run-dir", self.run_dir], 30)
        if code != 0:
            raise RuntimeError(f"no status: {text}")
        return json.loads(text)["exports"][0]["sieve"]["writes"]
