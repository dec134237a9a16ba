"""How tests start MPI jobs: with Forebay's MPI-IO preloaded, few ranks, a scratch folder."""
import json
import os
import subprocess


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
