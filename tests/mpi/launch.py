"""How tests start MPI jobs: with Forebay's MPI-IO preloaded, few ranks, a scratch folder."""
import contextlib
import json
import os
import subprocess
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
def nodes(count):
    """Name spaces of processes, each of which looks to us like a node of its own; needs root. Gives
    what makes the words of a job ones that deal its ranks out to them."""
    # They go with us, however we end.
    spaces = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount",
                                "--fork", "--mount-proc", "--kill-child", "sleep", "infinity"])
              for _ in range(count)]
    try:
        first = [first_process(space) for space in spaces]
        chosen = "$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % $NODES + 1))"
        script = (f"NODES={count}; pid=$(echo {' '.join(first)} | cut -d' ' -f{chosen}); "
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


class Server:
    """A server of its own, of a folder in `scratch`."""

    def __init__(self, build, scratch):
        self.forebay = os.path.join(build, "bin", "forebay")
        self.data = os.path.join(scratch, "data")
        self.run_dir = os.path.join(scratch, "run")

    def __enter__(self):
        os.makedirs(self.data, exist_ok=True)
        code, text = run([self.forebay, "start", self.data, "--run-dir", self.run_dir], 30)
        if code != 0:
            raise RuntimeError(f"cannot start a server: {text}")
        return self

    def __exit__(self, *_):
        run([self.forebay, "stop", "--run-dir", self.run_dir], 60)

    def sieved_writes(self):
        code, text = run([self.forebay, "status", "--json", "--run-dir", self.run_dir], 30)
        if code != 0:
            raise RuntimeError(f"no status: {text}")
        return json.loads(text)["exports"][0]["sieve"]["writes"]
