#!/usr/bin/env python3
"""What cannot be served is refused with an errno and a line; and what can go wrong around a program."""

import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

STATIC = r"""
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>
#include <fcntl.h>
int main(void) {
  int fd = open("made", O_CREAT | O_WRONLY, 0644);
  fprintf(stderr, "write: %s, open: %s\n", write(1, "lost", 4) < 0 ? strerror(errno) : "done",
          fd < 0 ? "refused" : "made");
  return 0;
}
"""

COUT = r"""
#include <cstdio>
#include <iostream>
int main() {
  std::cout << "by cout" << std::endl;
  std::printf("by printf\n");
  std::string line;
  while (std::getline(std::cin, line)) std::cout << "in " << line << "\n";
}
"""

OTHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int opens;
int open64(const char* path, int flags, int mode) {
  ++opens;
  return ((int (*)(const char*, int, int))dlsym(RTLD_NEXT, "open64"))(path, flags, mode);
}
int open(const char* path, int flags, int mode) { return open64(path, flags, mode); }
__attribute__((destructor)) static void end(void) {
  if (opens) (void)!write(2, "other was here\n", 15);
}
"""

CALLS = r"""
import ctypes, errno, fcntl, mmap, os, sys
view = sys.argv[1]
def outcome(call):
    try:
        call()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
fd = os.open(view + "/f", os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"x" * 5000)
print("low descriptors", len([n for n in os.listdir("/proc/self/fd") if int(n) < 100]))
print("shared mapping", outcome(lambda: mmap.mmap(fd, 5000)))
print("private mapping", outcome(lambda: mmap.mmap(fd, 5000, access=mmap.ACCESS_COPY)))
print("read mapping", outcome(lambda: mmap.mmap(fd, 5000, access=mmap.ACCESS_READ)))
print("fifo", outcome(lambda: os.mkfifo(view + "/fifo")))
print("across", outcome(lambda: os.rename(view + "/f", "/tmp/elsewhere")))
print("epoll", outcome(lambda: __import__("select").epoll().register(fd)))
print("flock", outcome(lambda: fcntl.flock(fd, fcntl.LOCK_EX)))
pid = os.fork()
if pid == 0:
    print("flock of a child", outcome(lambda: fcntl.flock(fd, fcntl.LOCK_EX)), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("directory read", outcome(lambda: os.read(os.open(view, os.O_RDONLY), 1)))
print("closed by the thousand", outcome(lambda: os.closerange(3, 70000)))
print("after that", outcome(lambda: os.stat(view)), os.open(view + "/f", os.O_RDONLY))
"""

HOLD = r"""
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX | (fcntl.LOCK_NB if len(sys.argv) > 2 else 0))
print("locked", flush=True)
sys.stdin.read()
"""


# Killed with a lock, while a child that has nothing to do with it lives on.
ORPHAN = r"""
import fcntl, os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    os.closerange(0, 3)
    time.sleep(100)
print(pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

# Children that share an offset are killed while they move it, and are not waited for at once.
KILLED = r"""
import os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for i in range(30):
    pid = os.fork()
    if pid == 0:
        while True:
            os.write(fd, b"x")
    time.sleep(0.02 + i * 0.0003)
    os.kill(pid, signal.SIGKILL)
    os.write(fd, b"y")
    os.waitpid(pid, 0)
print(os.lseek(fd, 0, os.SEEK_CUR) >= os.fstat(fd).st_size - 30)
"""


class Refusals(rig.PreloadCase):
    """With a server."""

    def build(self, text, language, *options):
        compiler = shutil.which("gcc" if language == "c" else "g++")
        if not compiler:
            self.skipTest("no compiler")
        path = self.path(f"program.{language}.{len(options)}")
        subprocess.run([compiler, "-x", language, "-", "-o", path, *options], input=text.encode(),
                       check=True, timeout=rig.SOON)
        return path

    def test_calls(self):
        done = self.served(rig.PYTHON, self.script("calls.py", CALLS), self.view)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(dict(line.rsplit(" ", 1) for line in done.stdout.decode().splitlines()), {
            "low descriptors": "5",  # 0, 1, 2, the file, and that of the listing: none of the client's
            "shared mapping": "ENODEV", "private mapping": "done", "read mapping": "done",
            "fifo": "EPERM", "across": "EXDEV", "epoll": "EPERM", "flock": "done",
            "flock of a child": "done", "directory read": "EISDIR",
            "closed by the thousand": "done", "after that done": "3"})
        lines = done.stderr.decode().splitlines()
        for word in ("mmap", "mkfifo"):
            self.assertEqual(len([line for line in lines if f" {word}: " in line]), 1, lines)

    def test_static_program_hears_of_it(self):
        program = self.build(STATIC, "c", "-static")
        done = self.served("/bin/bash", "-c", f"cd {self.view} && {program} > out; wc -c < out")
        self.assertEqual((done.returncode, done.stdout), (0, b"0\n"), done)
        self.assertEqual(done.stderr, b"write: Bad file descriptor, open: refused\n")
        self.bad_doctor(program, "static")
        done = self.served(program)
        self.assertIn(b"runs, and is not served: ", done.stderr)

    def test_set_uid_program(self):
        program = self.path("cat")
        shutil.copy("/bin/cat", program)
        os.chmod(program, 0o4755)
        self.bad_doctor(program, "set-uid")
        self.assertIn("served", self.good("doctor", "/bin/cat"))
        if rig.ROOT:  # another user, for whom the loader drops the preload: it fails, and says so
            os.chmod(self.temp, 0o755)
            done = self.served("setpriv", "--reuid=1000", "--clear-groups", program, f"{self.view}/f")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"No such file", done.stderr)

    def bad_doctor(self, program, text):
        result = self.forebay("doctor", program)
        self.assertEqual(result.code, 1, result)
        self.assertIn(text, result.out)

    def test_cout(self):
        program = self.build(COUT, "c++", "-O1")
        out = self.shell(f"cd {self.view}; seq 3 > in; {program} < in > out; cat out")
        self.assertEqual(out, "by cout\nby printf\nin 1\nin 2\nin 3\n")

    def test_another_preload(self):
        library = self.build(OTHER, "c", "-shared", "-fPIC")
        env = dict(self.env, LD_PRELOAD=library)
        done = self.served(rig.PYTHON, "-c", "open('/etc/hostname')", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, b"other was here\n"), done)
        done = self.served("/bin/bash", "-c", f"echo x > {self.view}/f; cat {self.view}/f", env=env)
        self.assertEqual(done.stdout, b"x\n", done)

    def test_the_command_lines_settings(self):
        config = self.path("other.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write('[client]\nretry_for = "7s"\n')
        env = dict(self.env, FOREBAY_CLIENT_JOB="environment")
        done = subprocess.run(
            [rig.FOREBAY, "--config", config, "--job", "line", "--set", "client.export=data", "run",
             "--", "/usr/bin/env"], env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = dict(one.split("=", 1) for one in done.stdout.splitlines() if "=" in one)
        handed_on = {name: seen.get(f"FOREBAY_CLIENT_{name}")
                     for name in ("JOB", "EXPORT", "RETRY_FOR", "CONNECT_TIMEOUT")}
        self.assertEqual(handed_on, {"JOB": "line", "EXPORT": "data", "RETRY_FOR": "7s",
                                     "CONNECT_TIMEOUT": None})

    def test_report(self):
        report = self.path("report")
        done = self.served("/bin/bash", "-c", f"echo hello > {self.view}/f; exec cat {self.view}/f 2>&-",
                           env=dict(self.env, FOREBAY_REPORT=report))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"hello\n", b""))
        with open(report, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertTrue(any(" bash " in line and "6 written" in line for line in lines), lines)
        self.assertTrue(any(" cat " in line and "1 files opened, 6 bytes read" in line for line in lines),
                        lines)
        done = self.served("/bin/cat", f"{self.view}/f", env=dict(self.env, FOREBAY_REPORT="1"))
        self.assertIn(b"forebay: cat ", done.stderr)
        self.assertIn(b"6 bytes read", done.stderr)

    def test_locks_of_processes_and_their_death(self):
        script, file = self.script("hold.py", HOLD), f"{self.view}/lock"
        command = [rig.FOREBAY, "run", "--", rig.PYTHON, script, file]
        first = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.running.append(first)
        self.assertEqual(first.stdout.readline(), b"locked\n")
        done = self.served(rig.PYTHON, script, file, "now", stdin=subprocess.DEVNULL)
        self.assertIn(b"BlockingIOError", done.stderr)
        second = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.running.append(second)
        time.sleep(0.3)
        first.stdin.close()
        first.stdin = None  # for communicate()
        self.assertEqual(second.stdout.readline(), b"locked\n")
        second.stdin.close()
        second.stdin = None
        self.assertEqual(second.wait(rig.SOON), 0)

    def test_offset_is_shared_and_outlives_who_is_killed(self):
        out = self.shell(
            f"cd {self.view}; {{ for i in $(seq 20); do echo line $i & done; wait; }} > out;"
            " sort -k2n out | md5sum; { (kill -9 $BASHPID) 2>/dev/null; echo after; } >> out 2>/dev/null; tail -1 out")
        want = subprocess.run(["md5sum"], input="".join(f"line {i}\n" for i in range(1, 21)).encode(),
                              capture_output=True, check=True).stdout.decode()
        self.assertEqual(out, want + "after\n")

    def test_server_restarts_meanwhile(self):
        process = subprocess.Popen(
            [rig.FOREBAY, "run", "--", "/bin/bash", "-c",
             f"exec 5>{self.view}/log; for i in $(seq 40); do echo $i >&5; sleep 0.05; done"],
            env=self.env, stderr=subprocess.PIPE)
        self.running.append(process)
        time.sleep(0.5)
        self.kill_server()
        self.start()
        self.assertEqual((process.wait(rig.SOON), process.stderr.read()), (0, b""))
        with open(os.path.join(self.data, "log"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), [str(i) for i in range(1, 41)])


# Locks, and then an exec that fails, or (with a word more) does not.
LOCKED = r"""
import fcntl, os, subprocess, sys
path, how = sys.argv[1], sys.argv[2]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
lock = fcntl.flock if how == "flock" else fcntl.lockf
lock(fd, fcntl.LOCK_EX)
if len(sys.argv) > 3:
    lock(fd, fcntl.LOCK_UN)
    os.execv("/bin/echo", ["echo", "quietly"])
try:
    os.execv("/nothing", ["nothing"])
except OSError:
    pass
other = "import fcntl, sys; fcntl.%s(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)" % lock.__name__
done = subprocess.run([sys.executable, "-c", other, path], capture_output=True)
print("held" if b"BlockingIOError" in done.stderr else "lost", flush=True)
os.execv("/bin/true", ["true"])
"""


class Deaths(rig.PreloadCase):
    """Processes that are killed."""

    server = False

    def test_locks_end_with_their_process_and_not_with_its_children(self):
        self.env["FOREBAY_SERVER_GRACE"] = "1s"
        self.start()
        done = self.served(rig.PYTHON, self.script("orphan.py", ORPHAN), f"{self.view}/f",
                           timeout=rig.SOON)
        child = int(done.stdout)
        try:
            taken = self.served(rig.PYTHON, "-c", "import fcntl, sys; f = open(sys.argv[1], 'r+');"
                                " fcntl.lockf(f, fcntl.LOCK_EX); print('taken')", f"{self.view}/f",
                                timeout=50)
            self.assertEqual((taken.returncode, taken.stdout), (0, b"taken\n"), taken)
            os.kill(child, 0)  # it lives
        finally:
            os.kill(child, signal.SIGKILL)

    def test_locks_and_exec(self):
        self.start()
        script = self.script("locked.py", LOCKED)
        for how in ("flock", "lockf"):
            done = self.served(rig.PYTHON, script, f"{self.view}/{how}", how, timeout=rig.SOON)
            self.assertEqual((done.returncode, done.stdout), (0, b"held\n"), done)
            line = b"exec: fcntl locks of served files are not the next program's"
            self.assertEqual(line in done.stderr, how == "lockf", done)
            done = self.served(rig.PYTHON, script, f"{self.view}/{how}2", how, "free", timeout=rig.SOON)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"quietly\n", b""))

    def test_offset_of_a_process_that_was_killed(self):
        self.start()
        done = self.served(rig.PYTHON, self.script("killed.py", KILLED), f"{self.view}/f",
                           timeout=rig.SOON)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"True\n", b""))


class NoServer(rig.PreloadCase):
    """Without one, or with a configuration that cannot be read."""

    server = False

    def test_no_server(self):
        done = self.served("/bin/bash", "-c", f"echo before; cat {self.view}/f; echo after")
        self.assertEqual((done.returncode, done.stdout), (0, b"before\nafter\n"))
        self.assertIn(b"Host is down", done.stderr)
        self.assertIn(b"forebay: cat: ", done.stderr)

    def test_broken_configuration(self):
        broken = self.path("broken.toml")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("[client\n")
        env = dict(self.env, FOREBAY_CONFIG=broken, LD_PRELOAD=os.path.realpath(rig.LIBRARY))
        done = subprocess.run(["/bin/cat", "/etc/hostname", f"{self.view}/f"], env=env,
                              capture_output=True, timeout=rig.SOON)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"broken.toml", done.stderr)
        with open("/etc/hostname", "rb") as file:
            self.assertEqual(done.stdout, file.read())
        self.assertEqual(self.served("true", env=env).returncode, 2)

    def test_no_path_to_be_served(self):
        self.env["FOREBAY_CLIENT_PRELOAD"] = "relative"
        self.bad(2, "no path to be served", "run", "--", "true")

    def test_killed_program_leaves_no_trace(self):
        self.start()
        process = subprocess.Popen(
            [rig.FOREBAY, "run", "--", rig.PYTHON, "-c",
             f"import os, time; os.chdir('{self.view}'); f = open('f', 'w'); print(1, flush=True); time.sleep(60)"],
            env=self.env, stdout=subprocess.PIPE)
        self.running.append(process)
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait(rig.SOON)
        self.assertEqual([n for n in os.listdir("/tmp") if n.startswith("forebay-cwd.")
                          and self.temp in n], [])


if __name__ == "__main__":
    rig.main()
