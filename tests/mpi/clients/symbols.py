#!/usr/bin/python3
"""Every function of MPI-IO that an MPI library exports is ours, under both names, and stands in
docs/mpi-symbols.md. `symbols.py --write` writes that file."""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the tree stays clean
from job import HERE, MPIS, library, main

DOCUMENT = os.path.join(HERE, "../../../docs/mpi-symbols.md")
OF_MPI_IO = re.compile(r"P?MPIX?_(File_|Register_datarep)")
TITLES = {"mpich": "MPICH", "openmpi": "Open MPI"}

# What is to be known of some functions, by the first that matches.
NOTES = [
    (r"File_open$", "served; an intercommunicator is MPI_ERR_COMM"),
    (r"File_(iread|iwrite).*_all", "served; completes in our MPI_Wait and its kind, when it has ended on "
                                   "all ranks; an error of one is an error of all"),
    (r"File_(iread|iwrite)", "served; completes in our MPI_Wait and its kind"),
    (r"File_.*_begin", "served; errors are reported by the call that ends it"),
    (r"File_.*_ordered", "served; the ranks agree on their places, on one node in memory that they share, "
                         "otherwise by a scan"),
    (r"File_.*_shared$", "served; the pointer is in the node's memory; of ranks on several nodes the file's "
                         "server has it, or rank 0's arbiter"),
    (r"File_(read|write).*_all", "served; all ranks get the worst error of any"),
    (r"File_set_view", "served; representations native, internal, external32 and registered ones"),
    (r"File_(set|get)_atomicity", "served; by range locks without lock files"),
    (r"File_(c2f|f2c)", "served; Fortran's numbers are ours"),
    (r"File_create_errhandler", "served; also under the names that Fortran's bindings call"),
    (r"Register_datarep", "served; conversion functions are called on the program's own thread"),
    (r".*", "served"),
]
BESIDE = {
    r"P?MPI_(Wait|Test)(all|any|some)?": "completes our requests, then calls the MPI's own",
    r"P?MPI_Init(_thread)?": "calls the MPI's own, then watches for MPI_Finalize, where files that are "
                             "left open are closed",
    r"P?MPI_Request_(free|get_status)": "looks after our requests, then calls the MPI's own",
    r"P?MPI_Errhandler_free": "keeps a handler that files still use, then calls the MPI's own",
    r"P?MPI_Error_string": "calls the MPI's own, and adds what was wrong in the call that failed",
    r"(?i)p?mpi_file_create_errhandler_*": "Fortran's name of MPI_File_create_errhandler",
    r"ompi_file_create_errhandler_f": "what Open MPI's mpi_f08 calls instead",
}


def exported(path):
    shown = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True,
                           text=True).stdout
    return {line.split()[2].split("@")[0] for line in shown.splitlines() if len(line.split()) == 3}


def mpi_library(mpi):
    """The MPI library that ours was built for, as the loader finds it."""
    shown = subprocess.run(["ldd", library(mpi)], check=True, capture_output=True, text=True).stdout
    return re.search(r"libmpi(?:ch)?\.so\S* => (\S+)", shown).group(1)


def of_mpi(mpi):
    return {name for name in exported(mpi_library(mpi)) if OF_MPI_IO.match(name)}


def functions(names):
    return {name.removeprefix("P") for name in names}


def note(function):
    name = re.sub(r"^MPIX?_|_c$", "", function)
    return next(text for pattern, text in NOTES if re.match(pattern, name))


def text_of_document(found):
    """`found`: the functions of each MPI."""
    lines = [
        "# The functions of MPI-IO, and what we do",
        "Written by `tests/mpi/clients/symbols.py --write`, and compared by the test with what the MPI "
        "libraries export. Every function is ours under its `MPI_` and its `PMPI_` name: Fortran's "
        "bindings and profiling tools use either.",
        "",
        "| function | " + " | ".join(TITLES[mpi] for mpi in MPIS) + " | what we do |",
        "|---|" + "---|" * len(MPIS) + "---|",
    ]
    for function in sorted(set().union(*found.values()), key=str.lower):
        marks = " | ".join("yes" if function in found[mpi] else "no" for mpi in MPIS)
        lines.append(f"| `{function}` | {marks} | {note(function)} |")
    lines += ["", "Beside them our libraries define:", "", "| names | what we do |", "|---|---|"]
    lines += [f"| `{pattern.replace('|', chr(92) + '|')}` | {text} |"
              for pattern, text in BESIDE.items()]
    return "\n".join(lines) + "\n"


class Symbols(unittest.TestCase):
    def setUp(self):
        self.mpis = [mpi for mpi in MPIS if os.path.exists(library(mpi))]
        if not self.mpis:
            self.skipTest("no library of MPI-IO was built")

    def test_every_function_is_ours(self):
        for mpi in self.mpis:
            with self.subTest(mpi):
                names = of_mpi(mpi)
                self.assertGreaterEqual(len(functions(names)), 62)
                # Both names, whatever the MPI has.
                both = functions(names) | {"P" + name for name in functions(names)}
                self.assertEqual(sorted((names | both) - exported(library(mpi))), [])

    def test_the_document_says_so(self):
        with open(DOCUMENT, encoding="utf-8") as file:
            rows = re.findall(r"^\| `(MPI\w+)` \| (\w+) \| (\w+) \| (\S.*) \|$", file.read(), re.M)
        for mpi in self.mpis:
            with self.subTest(mpi):
                listed = {row[0] for row in rows if row[1 + MPIS.index(mpi)] == "yes"}
                self.assertEqual(listed, functions(of_mpi(mpi)), "run symbols.py --write")

    def test_nothing_else_is_exported(self):
        for mpi in self.mpis:
            with self.subTest(mpi):
                others = {name for name in exported(library(mpi)) if not OF_MPI_IO.match(name)}
                self.assertEqual([name for name in sorted(others)
                                  if not any(re.fullmatch(p, name) for p in BESIDE)], [])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with open(DOCUMENT, "w", encoding="utf-8") as out:
            out.write(text_of_document({mpi: functions(of_mpi(mpi)) for mpi in MPIS}))
    else:
        main()
