#!/usr/bin/env python3
"""The installed package, as a user meets it: installs into a temporary prefix, looks at what the
library shows, builds the example from the package alone, by pkg-config and by CMake, and runs it
against the installed server."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(SOURCES, "examples")
BUILD = os.environ.get("FOREBAY_TEST_BUILD", os.path.join(SOURCES, "build"))
FLAGS = os.environ.get("FOREBAY_TEST_FLAGS", "").split()  # a sanitizer's, which the library needs
LIMIT = 120


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.mkdtemp(prefix="forebay-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.temp, ignore_errors=True)
        cls.prefix = os.path.join(cls.temp, "prefix")
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        found = [folder for folder, _, files in os.walk(cls.prefix) if "libforebay.so" in files]
        cls.lib = found[0]
        # Nothing of the user's own configuration may matter.
        cls.env = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_")}
        cls.env.update(HOME=cls.temp, XDG_CONFIG_HOME=cls.temp, XDG_RUNTIME_DIR=cls.temp,
                       FOREBAY_SERVER_RUN_DIR=os.path.join(cls.temp, "run"),
                       PKG_CONFIG_PATH=os.path.join(cls.lib, "pkgconfig"),
                       LD_LIBRARY_PATH=cls.lib)

    def forebay(self, *args):
        return run(os.path.join(self.prefix, "bin", "forebay"), *args, env=self.env)

    def functions(self):
        """What the header declares."""
        with open(os.path.join(self.prefix, "include/forebay/forebay.h"), encoding="utf-8") as file:
            code = re.sub(r"//.*", "", file.read())
        return set(re.findall(r"\b(fb_\w+)\(", code))

    def serve(self):
        data = os.path.join(self.temp, "data")
        os.makedirs(data, exist_ok=True)
        self.forebay("start", data)
        self.addCleanup(self.forebay, "stop")
        return data

    def run_example(self, program):
        data = self.serve()
        out = run(program, "/checkpoint", "3", "5", env=self.env)
        self.assertIn("all good", out)
        size = 64 + 3 * 5 * 64 * 4096
        self.assertEqual(os.path.getsize(os.path.join(data, "checkpoint")), size)
        self.assertIn(str(size), self.forebay("ls", "-l", "/"))

    def test_the_library_shows_its_functions_and_nothing_else(self):
        listed = run("nm", "-D", "--defined-only", os.path.join(self.lib, "libforebay.so"))
        shown = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
        self.assertEqual(shown, self.functions())
        self.assertGreater(len(shown), 40)
        dynamic = run("readelf", "-d", os.path.join(self.lib, "libforebay.so"))
        self.assertIn("[libforebay.so.0]", dynamic)

    def test_the_header_is_c_and_cpp(self):
        for compiler, language, standard in (("cc", "c", "c99"), ("c++", "c++", "c++11")):
            run(compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic",
                "-Werror", "-fsyntax-only",
                os.path.join(self.prefix, "include/forebay/forebay.h"))

    def test_the_example_by_pkg_config(self):
        words = run("pkg-config", "--cflags", "--libs", "forebay", env=self.env).split()
        program = os.path.join(self.temp, "by-pkg-config")
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", *FLAGS,
            os.path.join(EXAMPLES, "checkpoint.c"), "-o", program, *words, "-pthread")
        self.run_example(program)

    def test_the_example_by_cmake(self):
        sources, build = os.path.join(self.temp, "example"), os.path.join(self.temp, "by-cmake")
        shutil.copytree(EXAMPLES, sources)  # nothing of the source tree is near
        run("cmake", "-S", sources, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_FLAGS={' '.join(FLAGS)}", env=self.env)
        run("cmake", "--build", build, env=self.env)
        self.run_example(os.path.join(build, "checkpoint"))
        out = run(os.path.join(build, "tracelog"), "/", "16", "100", "3", env=self.env)
        self.assertIn("1600 events of 16 writers in 3 files, each once and whole", out)

    def test_the_example_says_what_to_do_without_a_server(self):
        program = os.path.join(self.temp, "alone")
        words = run("pkg-config", "--cflags", "--libs", "forebay", env=self.env).split()
        run("cc", "-std=c99", *FLAGS, os.path.join(EXAMPLES, "checkpoint.c"), "-o", program, *words,
            "-pthread")
        done = subprocess.run([program, "/x"], env=self.env, capture_output=True, text=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("forebay start", done.stderr)


if __name__ == "__main__":
    unittest.main()
