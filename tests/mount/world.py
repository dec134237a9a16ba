"""Random operations on two folders at once, and the comparison of what each of them answers.

A World has two sides, the mount and a plain folder. Every operation is chosen by a seeded generator,
done on one side and then on the other, and its outcomes (a value, or an errno) must be the same.
"""

import ctypes
import errno
import hashlib
import mmap
import os
import random
import stat

libc = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
NOREPLACE, EXCHANGE = 1, 2

HOSTILE = [b"a", b"b", b"c", b"d", b"new\nline", b"tab\there", b" ", b"-rf", b"*", b"...", b".hidden",
           b"\xff\xfe\x80", b"quote'\"`$(x)", b"back\\slash", b"\xc3\xa9", b"e\xcc\x81", b"\x01\x7f",
           b"n" * 255, "ü".encode() * 127, b"%s%n", b"~", b"#", b"con", b"a,b=c"]
TOO_LONG = b"n" * 256


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "libc")
    return result


def fallocate(fd, mode, at, length):
    return check(libc.fallocate(fd, mode, ctypes.c_int64(at), ctypes.c_int64(length)))


def renameat2(old, new, flags):
    return check(libc.renameat2(-100, old, -100, new, flags))


class Different(AssertionError):
    pass


class World:
    """Two roots, and what the generator knows of them: names that may exist, and open files."""

    def __init__(self, ours, theirs, seed, identities=None):
        self.roots = (os.fsencode(ours), os.fsencode(theirs))
        self.random = random.Random(seed)
        self.seed = seed
        self.open = []  # pairs of descriptors
        self.count = 0
        self.identities = identities or []
        self.log = []
        self.table = [(getattr(self, "do_" + name), weight) for name, weight in [
            ("open", 30), ("close", 22), ("pwrite", 22), ("pread", 22), ("write", 14), ("read", 14),
            ("seek", 6), ("vectors", 6), ("ftruncate", 6), ("truncate", 5), ("fallocate", 6),
            ("sync", 2), ("fstat", 8), ("lstat", 12), ("stat", 5), ("access", 4), ("mkdir", 8),
            ("rmdir", 4), ("unlink", 8), ("rename", 8), ("rename2", 5), ("link", 5), ("symlink", 4),
            ("readlink", 3), ("chmod", 4), ("fchmod", 2), ("chown", 3), ("utime", 4), ("list", 5),
            ("setxattr", 4), ("getxattr", 3), ("listxattr", 2), ("removexattr", 2), ("mmap", 6),
            ("copy", 3), ("sendfile", 2), ("mknod", 2), ("statvfs", 1)]]
        if self.identities:
            self.table.append((self.do_become, 8))

    # ---- What there is to choose from ----

    def name(self):
        return TOO_LONG if self.random.random() < 0.005 else self.random.choice(HOSTILE)

    def place(self):
        """A path below the roots, of up to three names; few enough that most exist."""
        r = self.random.random()
        depth = 1 if r < 0.5 else 2 if r < 0.85 else 3
        few = HOSTILE[:4]
        return b"/".join([self.random.choice(few) for _ in range(depth - 1)] + [
            self.random.choice(few) if self.random.random() < 0.6 else self.name()])

    def both(self, place):
        return tuple(root + b"/" + place for root in self.roots)

    def bytes(self):
        sizes = [0, 1, 7, 100, 4095, 4096, 4097, 10000, 65536, 131073, 300001]
        size = self.random.choice(sizes) if self.random.random() < 0.7 else self.random.randrange(20000)
        return self.random.randbytes(min(size, 64)) * (size // 64 + 1) if size else b""

    def offset(self):
        r = self.random.random()
        if r < 0.02:
            return self.random.choice([1 << 31, (1 << 32) + 5, 1 << 40, -1])
        return self.random.randrange(1 << 19)

    # ---- Doing it twice ----

    def outcome(self, call, side):
        try:
            return call(side)
        except OSError as error:
            return "!" + errno.errorcode.get(error.errno, str(error.errno))

    def compare(self, what, call):
        ours, theirs = self.outcome(call, 0), self.outcome(call, 1)
        short = [o if not isinstance(o, bytes) else f"{len(o)} bytes {hashlib.md5(o).hexdigest()}"
                 for o in (ours, theirs)]
        self.note(f"{self.count}: {what} -> {short[1]}")
        if not self.alike(what, ours, theirs):
            raise Different(f"seed {self.seed}, operation {self.count}: {what}\n  mount: {short[0]}\n"
                            f"  plain: {short[1]}\nbefore it:\n  " + "\n  ".join(self.log))
        return ours

    def alike(self, what, ours, theirs):
        # The kernel looks at what a name is, and how long, before it asks us whether it may be used;
        # of two paths, at the last name of the first (and whose it is, protected_hardlinks) before
        # we are asked about the folders of the second. A link that open() must not follow is ELOOP,
        # but in another's sticky folder EACCES, with O_CREAT, where the kernel makes the file.
        sooner = ["!EISDIR", "!ENOTDIR", "!ENAMETOOLONG"]
        if what.startswith(("rename", "link")):
            sooner += ["!ENOENT", "!EEXIST", "!ELOOP", "!EPERM"]
        if what.startswith("open"):
            sooner += ["!ELOOP"]
        return ours == theirs or (theirs in ("!EACCES", "!EPERM") and ours in sooner)

    def note(self, line):
        line = line.replace(os.fsdecode(self.roots[1]), "")
        self.log.append(line if len(line) < 160 else f"{line[:70]} ... {line[-60:]}")
        del self.log[:-15]

    def on_file(self, what, call):
        if not self.open:
            return
        pair = self.random.choice(self.open)
        self.compare(f"{what} fd {pair}", lambda side: call(pair[side]))

    def on_path(self, what, call):
        paths = self.both(self.place())
        self.compare(f"{what} {paths[1]}", lambda side: call(paths[side]))

    def on_paths(self, what, call):
        old, new = self.both(self.place()), self.both(self.place())
        self.compare(f"{what} {old[1]} {new[1]}", lambda side: call(old[side], new[side]))

    @staticmethod
    def shown(st):
        size = st.st_size if not stat.S_ISDIR(st.st_mode) else None
        # The Store's rule is that any writer clears a file's set-id bits, also root.
        mode = st.st_mode & ~0o6000 if stat.S_ISREG(st.st_mode) else st.st_mode
        return (f"{mode:o}", st.st_nlink, st.st_uid, st.st_gid, size, st.st_blksize)

    def run(self, operations):
        calls, weights = zip(*self.table)
        for call in self.random.choices(calls, weights, k=operations):
            self.count += 1
            call()
        self.become(None)
        self.finish()

    def finish(self):
        for pair in self.open:
            self.compare(f"contents of fd {pair}", lambda side, p=pair: self.whole(p[side]))
        while self.open:
            self.close(self.open[0])
        self.compare("the whole tree", lambda side: self.tree(self.roots[side]))

    @staticmethod
    def whole(fd):
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_size > 1 << 26:
            return World.shown(os.fstat(fd))
        return os.pread(fd, 1 << 26, 0)

    def tree(self, root):
        found, inodes = [], {}
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(folders + files):
                path = os.path.join(folder, name)
                st = os.lstat(path)
                row = [path[len(root):], self.shown(st), sorted(os.listxattr(path, follow_symlinks=False))]
                row.append(inodes.setdefault(st.st_ino, path[len(root):]))  # hard links
                if stat.S_ISLNK(st.st_mode):
                    row.append(os.readlink(path))
                elif stat.S_ISREG(st.st_mode) and st.st_size < 1 << 26:
                    with open(path, "rb") as file:
                        row.append(hashlib.md5(file.read()).hexdigest())
                found.append(row)
        return found

    # ---- Who ----

    def become(self, identity):
        if not self.identities:
            return
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([] if identity is None else identity[2])
        if identity is not None:
            os.setegid(identity[1])
            os.seteuid(identity[0])

    def do_become(self):
        identity = self.random.choice([None, None, *self.identities])
        self.note(f"as {identity}")
        self.become(identity)

    # ---- Files ----

    def do_open(self):
        pick = self.random.random
        flags = self.random.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR])
        for flag, chance in [(os.O_CREAT, .6), (os.O_EXCL, .15), (os.O_TRUNC, .15), (os.O_APPEND, .2),
                             (os.O_DIRECTORY, .03), (os.O_NOFOLLOW, .1), (os.O_DSYNC, .03)]:
            if pick() < chance:
                flags |= flag
        if flags & os.O_DIRECTORY:
            flags &= ~os.O_CREAT
        mode = self.random.choice([0o644, 0o600, 0o666, 0o444, 0o000, 0o4755, 0o2770])
        paths, fds = self.both(self.place()), [None, None]

        def call(side):
            fds[side] = os.open(paths[side], flags | os.O_NONBLOCK, mode)
            return "open"
        if self.compare(f"open {paths[1]} {flags:o} {mode:o}", call) == "open":
            self.open.append(tuple(fds))
            # One that is removed while it is open is ESTALE on a mount.
            if stat.S_ISDIR(os.fstat(fds[1]).st_mode):
                self.close(self.open[-1])
            if len(self.open) > 20:
                self.close(self.open[0])

    def close(self, pair):
        self.open.remove(pair)
        self.compare(f"close {pair}", lambda side: os.close(pair[side]))

    def do_close(self):
        if self.open:
            self.close(self.random.choice(self.open))

    def do_pwrite(self):
        data, at = self.bytes(), self.offset()
        self.on_file(f"pwrite {len(data)} at {at}", lambda fd: os.pwrite(fd, data, at))

    def do_pread(self):
        size, at = self.random.choice([0, 1, 4096, 10000, 200000]), self.offset()
        self.on_file(f"pread {size} at {at}", lambda fd: os.pread(fd, size, at))

    def do_write(self):
        data = self.bytes()
        self.on_file(f"write {len(data)}",
                     lambda fd: (os.write(fd, data), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size))

    def do_read(self):
        size = self.random.choice([1, 100, 4096, 100000])
        self.on_file(f"read {size}", lambda fd: os.read(fd, size))

    def do_seek(self):
        how = self.random.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
        by = self.random.randrange(-1000, 100000)

        def call(fd):
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                return None  # a file system's own affair
            return os.lseek(fd, by, how)
        self.on_file(f"lseek {by} {how}", call)

    def do_vectors(self):
        at = self.offset()
        if self.random.random() < 0.5:
            pieces = [self.bytes()[:5000] for _ in range(3)]
            self.on_file(f"pwritev at {at}", lambda fd: os.pwritev(fd, pieces, at))
        else:
            def call(fd):
                buffers = [bytearray(1000), bytearray(5000), bytearray(1)]
                n = os.preadv(fd, buffers, at)
                return n, b"".join(buffers)[:n]
            self.on_file(f"preadv at {at}", call)

    def do_ftruncate(self):
        size = self.offset()
        self.on_file(f"ftruncate {size}", lambda fd: os.ftruncate(fd, size))

    def do_truncate(self):
        size = self.offset()
        self.on_path(f"truncate {size}", lambda path: os.truncate(path, size))

    def do_fallocate(self):
        mode = self.random.choice([0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE,
                                   ZERO_RANGE | KEEP_SIZE, PUNCH_HOLE])
        at, length = self.random.randrange(1 << 18), self.random.randrange(1 << 16)
        self.on_file(f"fallocate {mode} {at} {length}", lambda fd: fallocate(fd, mode, at, length))

    def do_sync(self):
        self.on_file("fsync", self.random.choice([os.fsync, os.fdatasync]))

    def do_fstat(self):
        self.on_file("fstat", lambda fd: self.shown(os.fstat(fd)))

    def do_mmap(self):
        at, data = self.random.randrange(1 << 16), self.bytes()[:9000]
        access = self.random.choice([mmap.ACCESS_READ, mmap.ACCESS_WRITE, mmap.ACCESS_COPY])

        def call(fd):
            size = os.fstat(fd).st_size
            if not stat.S_ISREG(os.fstat(fd).st_mode) or size == 0 or size > 1 << 24:
                return None
            try:
                with mmap.mmap(fd, size, access=access) as m:
                    if access != mmap.ACCESS_READ and at + len(data) <= size:
                        m[at:at + len(data)] = data
                    seen = hashlib.md5(m[:]).hexdigest()
                    # What was stored by the mapping is read by a call before it is unmapped.
                    through = os.pread(fd, len(data), at) if os.O_RDWR & flags_of(fd) else None
                    return seen, through
            except ValueError as error:
                return str(error)
        self.on_file(f"mmap {access} {at} {len(data)}", call)

    def two_files(self):
        """Of one file, pieces that overlap may be copied in any way."""
        if len(self.open) < 2:
            return None
        pair = self.random.sample(self.open, 2)
        one, other = (os.fstat(p[1]).st_ino for p in pair)
        return pair if one != other else None

    def do_copy(self):
        size, at, to = self.random.randrange(100000), self.random.randrange(50000), self.random.randrange(50000)
        if two := self.two_files():
            a, b = two
            self.compare(f"copy_file_range {a} {b} {size} {at} {to}",
                         lambda side: os.copy_file_range(a[side], b[side], size, at, to))

    def do_sendfile(self):
        size, at = self.random.randrange(60000), self.random.randrange(50000)
        if two := self.two_files():
            a, b = two
            self.compare(f"sendfile {a} {b} {size} {at}",
                         lambda side: os.sendfile(b[side], a[side], at, size))

    # ---- Names ----

    def do_lstat(self):
        self.on_path("lstat", lambda path: self.shown(os.lstat(path)))

    def do_stat(self):
        self.on_path("stat", lambda path: self.shown(os.stat(path)))

    def do_access(self):
        mode = self.random.randrange(8)
        self.on_path(f"access {mode}", lambda path: os.access(path, mode, effective_ids=True))

    def do_mkdir(self):
        mode = self.random.choice([0o755, 0o755, 0o777, 0o1777, 0o2775, 0o700])
        self.on_path(f"mkdir {mode:o}", lambda path: os.mkdir(path, mode))

    def do_rmdir(self):
        self.on_path("rmdir", os.rmdir)

    def do_unlink(self):
        self.on_path("unlink", os.unlink)

    def do_rename(self):
        self.on_paths("rename", os.rename)

    def do_rename2(self):
        flags = self.random.choice([NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE])
        self.on_paths(f"renameat2 {flags}", lambda old, new: renameat2(old, new, flags))

    def do_link(self):
        self.on_paths("link", lambda old, new: os.link(old, new, follow_symlinks=False))

    def do_symlink(self):
        target = self.random.choice([b"a", b"b", b"../a", b"nowhere", b"a/b", b"x" * 200, b"."])
        self.on_path(f"symlink {target}", lambda path: os.symlink(target, path))

    def do_readlink(self):
        self.on_path("readlink", os.readlink)

    def do_mknod(self):
        self.on_path("mknod", lambda path: os.mknod(path, 0o640 | stat.S_IFREG))

    def do_chmod(self):
        mode = self.random.choice([0o644, 0o755, 0o600, 0o777, 0o4755, 0o2755, 0o1777, 0o000])
        self.on_path(f"chmod {mode:o}", lambda path: os.chmod(path, mode))

    def do_fchmod(self):
        mode = self.random.choice([0o644, 0o755, 0o600, 0o6755])
        self.on_file(f"fchmod {mode:o}", lambda fd: os.fchmod(fd, mode))

    def do_chown(self):
        uid, gid = self.random.choice([-1, 0, 1000, 1001]), self.random.choice([0, 1000, 1001])
        self.on_path(f"chown {uid} {gid}", lambda path: os.chown(path, uid, gid, follow_symlinks=False))

    def do_utime(self):
        times = (self.random.randrange(1 << 60), self.random.randrange(1 << 60))

        def call(path):
            os.utime(path, ns=times, follow_symlinks=False)
            return os.lstat(path).st_mtime_ns  # the way to it may lead through a link that it is: atime
        self.on_path(f"utime {times}", call)

    def do_list(self):
        def call(path):
            with os.scandir(path) as found:
                return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in found)
        self.on_path("list", call)

    def do_statvfs(self):
        self.on_path("statvfs", lambda path: (os.statvfs(path).f_namemax, os.statvfs(path).f_frsize,
                                              os.statvfs(path).f_blocks))

    # ---- Extended attributes ----

    def attribute(self):
        return self.random.choice(["user.a", "user.b", "user." + "n" * 249, "user.x y"])

    def do_setxattr(self):
        name, value = self.attribute(), self.random.randbytes(self.random.choice([0, 1, 100, 2000]))
        flags = self.random.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])
        self.on_path(f"setxattr {name} {len(value)} {flags}",
                     lambda path: os.setxattr(path, name, value, flags, follow_symlinks=False))

    def do_getxattr(self):
        name = self.attribute()
        self.on_path(f"getxattr {name}", lambda path: os.getxattr(path, name, follow_symlinks=False))

    def do_listxattr(self):
        self.on_path("listxattr", lambda path: sorted(os.listxattr(path, follow_symlinks=False)))

    def do_removexattr(self):
        name = self.attribute()
        self.on_path(f"removexattr {name}",
                     lambda path: os.removexattr(path, name, follow_symlinks=False))


def flags_of(fd):
    import fcntl
    return fcntl.fcntl(fd, fcntl.F_GETFL)
