"""How tests start MPI jobs: with Forebay's MPI-IO preloaded, few ranks, a scratch folder."""
import os
import subprocess


def environment():
    env = dict(os.environ)
    # As root Open MPI wants to be told twice; an ordinary user is not bothered by it.
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_btl_base_warn_component_unused="0")
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
