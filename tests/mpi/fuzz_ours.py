#!/usr/bin/env python3
"""mpiio_fuzz on Forebay's MPI-IO: local, or through a server of its own.

    fuzz_ours.py BUILD MPI RANKS CASES [--served [SERVERS]] [--apart [NODES]] [--without FEATURES]
                 [--only KIND] [--hints HINTS] [--kill] [--seed SEED [--case CASE]]

--apart: ranks are dealt out to so many name spaces of processes, or to one each, which look to us
like nodes (needs root). With several servers, each node has one.

--kill: servers are killed and started again all the while, once every rank has reached one.

The seed is of the day, so that every day sees other cases; FOREBAY_SEED plays one again."""
import argparse
import contextlib
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import launch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("mpi")
    parser.add_argument("ranks", type=int)
    parser.add_argument("cases")
    parser.add_argument("--served", type=int, nargs="?", const=1)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--only", help="one kind of cases")
    parser.add_argument("--seconds", default="100")
    parser.add_argument("--case", help="only this one, of FOREBAY_SEED or --seed, CASES times")
    parser.add_argument("--seed", default=str(int(time.time()) // 86400))
    parser.add_argument("--apart", type=int, nargs="?", const=0)
    parser.add_argument("--without", help="features that the MPI itself has wrong")
    parser.add_argument("--hints", help="of every file, as FOREBAY_HINTS has them")
    options = parser.parse_args()
    if options.apart is not None and os.geteuid() != 0:
        print("skipped: ranks are put apart by root only")
        sys.exit(77)
    seed = os.environ.get("FOREBAY_SEED", options.seed)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="forebay-fuzz-") as scratch:
        data = os.path.join(scratch, "data")
        os.mkdir(data)
        env, variables = launch.environment(), {}
        if options.hints:
            variables["FOREBAY_HINTS"] = options.hints
        server = launch.Server(options.build, scratch, options.served) if options.served else None
        with server or contextlib.nullcontext():
            if server:
                variables["FOREBAY_CLIENT_SERVER"] = server.run_dir
            words = [os.path.join(options.build, "bin", f"mpiio_fuzz_{options.mpi}"), "--dir", data,
                     "--seed", seed, "--zeros", "--seconds", options.seconds]
            words += (["--case", options.case, "--times", options.cases] if options.case
                      else ["--cases", options.cases])
            ready = os.path.join(scratch, "ready")
            if options.kill:
                words += ["--ready", ready]
            if options.only:
                words += ["--only", options.only]
            if options.without:
                words += ["--without", options.without]
            with contextlib.ExitStack() as stack:
                if options.apart is not None:
                    env.update(launch.between_nodes(options.mpi))
                    words = stack.enter_context(launch.nodes(
                        options.apart or options.ranks, server.run_dirs if server else ()))(words)
                kills = None
                if options.kill:
                    kills = stack.enter_context(server.killed_all_the_while(ready))
                code, text = launch.run(
                    launch.command(options.mpi, options.ranks,
                                   launch.libraries(options.build, options.mpi, options.ranks),
                                   words, variables), int(options.seconds) + 80, env)
            if server and "romio_ds_write=enable" in (options.hints or ""):
                if server.sieved_writes() == 0:
                    code, text = 1, text + "\nthe server sieved no write"
            if server and server.left_behind() != 0:
                code, text = 1, text + "\nthe servers have attributes that nobody uses"
    if kills is not None:
        text += f"\n{len(kills)} times a server was killed"
    print(text)
    sys.exit(0 if code == 0 and "all as the oracle says" in text else 1)


main()
