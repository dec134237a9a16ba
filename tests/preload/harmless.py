#!/usr/bin/env python3
"""Programs that have nothing to do with Forebay, under the preload, without a server: as without it."""

import concurrent.futures
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig

# What they do to files of the kernel, in a folder of their own.
COMMANDS = r"""
echo hello
printf '%s %d\n' a 3
cat words
cat < words > copy; cat copy
tac words
rev words
nl words
head -n 3 words
tail -n 3 words
tail -c 7 words
sort words
sort -r words | uniq -c
sort -n numbers
shuf -i 1-1 -n 1
wc words
wc -l < numbers
cut -c 1-3 words
tr a-z A-Z < words
fold -w 5 words
fmt -w 20 words
paste words numbers
join numbers numbers
comm words words
split -l 50 numbers part.; ls part.*
csplit -s numbers 10; ls xx*
md5sum words
sha1sum words
sha256sum words numbers
sha512sum words
b2sum words
cksum words
sum words
base64 words
base32 words
od -c words
hexdump -C words
xxd words
strings words
grep -n o words
grep -c 1 numbers
egrep 'a|b' words
fgrep lazy words
sed 's/o/0/g' words
sed -n 2p words
awk '{ n += $1 } END { print n }' numbers
awk 'NR % 7 == 0' numbers
perl -ne 'print if /9/' numbers
perl -e 'opendir D, "."; print join " ", sort readdir D'
perl -e 'open F, ">", "p"; print F "x"; close F; print -s "p"'
python3 -c 'print(sum(range(100)))'
python3 -c 'import os; print(sorted(os.listdir(".")))'
python3 -c 'import subprocess; print(subprocess.check_output(["echo", "x"]))'
python3 -c 'import threading; t = threading.Thread(target=print, args=("t",)); t.start(); t.join()'
python3 -c 'import multiprocessing as m; print(m.get_context("fork").Pool(2).map(abs, [-1, 2]))'
python3 -c 'import tempfile; f = tempfile.TemporaryFile(); f.write(b"x"); f.seek(0); print(f.read())'
python3 -c 'import mmap; f = open("words", "r+b"); print(mmap.mmap(f.fileno(), 0)[:5])'
python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))'
python3 -c 'import select, os; r, w = os.pipe(); os.write(w, b"x"); print(select.select([r], [], [], 1) == ([r], [], []))'
python3 -c 'import asyncio; print(asyncio.run(asyncio.sleep(0, 5)))'
python3 -c 'import ctypes; print(ctypes.CDLL("libm.so.6") is not None)'
python3 -c 'import os; os.closerange(3, 2000); print(os.open("words", os.O_RDONLY))'
python3 -c 'import os; print(os.dup2(1, 50), os.isatty(0))'
python3 -c 'import ssl, hashlib, zlib; print(hashlib.sha1(b"x").hexdigest())'
python3 -c 'import sqlite3; print(sqlite3.connect("db").execute("select 1+1").fetchall())'
python3 -c 'import os; pid = os.fork(); os._exit(3) if pid == 0 else print(os.waitpid(pid, 0)[1])'
python3 -c 'raise SystemExit(7)'
bash -c 'echo $((6 * 7))'
bash -c 'for i in 1 2 3; do echo $i; done | tac'
bash -c 'a=$(echo x | cat); echo $a'
bash -c 'cat <(echo a) <(echo b)'
bash -c 'echo err >&2; exit 4'
bash -c 'exec 5>five; echo x >&5; exec 5>&-; cat five'
bash -c 'trap "echo bye" EXIT; echo hi'
bash -c 'kill -TERM $$'
bash -c 'ulimit -n 64; cat words | wc -l'
bash -c 'read -r a b < words; echo $a'
bash -c 'time -p true' 2>&1 | grep -c real
bash -c 'set -o pipefail; false | true; echo $?'
bash -c 'shopt -s globstar; echo **'
bash -c 'coproc cat; echo x >&${COPROC[1]}; read -r l <&${COPROC[0]}; echo $l'
sh -c 'cd sub && pwd | grep -c sub'
sh -c 'echo a > a1; echo b >> a1; cat a1'
sh -c 'cat <<END
here
END'
dash -c 'echo dash | cat'
ls
ls -a sub
ls -1 -S
ls missing
dir sub
vdir missing
find . -name 'w*'
find sub -type f -exec cat {} +
find . -size +1k
xargs -n 2 echo < words
xargs -P 2 -n 1 echo < /dev/null
cp words w2; cmp words w2
cp -a sub sub2; diff -r sub sub2
cp missing there
mv words moved; cat moved
ln words hard; stat -c %h words
ln -s words soft; readlink soft
rm -r sub; ls
rmdir sub
mkdir -p d/e/f; ls -R d
mkdir sub
touch -d 2001-01-01 t; stat -c %Y t
chmod 600 words; stat -c %a words
truncate -s 100 big; stat -c %s big
dd if=words bs=3 count=2 status=none
dd if=/dev/zero of=z bs=1k count=8 status=none; wc -c < z
tee one two < words | wc -l
mktemp -u -p . x.XXXX | wc -c
mktemp -d -p . > /dev/null; ls | wc -l
realpath -e words | grep -c words
basename /a/b/c
dirname /a/b/c
pathchk words
stat -c %s words
stat missing
du -b words
df . > /dev/null
sync words
install -m 644 words installed; ls -l installed | cut -c 1-10
tar cf t.tar words numbers; tar tf t.tar
tar czf t.tgz sub; tar xzf t.tgz -C d0 2>&1 | head -1
gzip -k words; zcat words.gz
gzip -c words | gunzip
bzip2 -k words; bzcat words.bz2
xz -k words; xzcat words.xz
zstd -q words; zstdcat words.zst
cpio -o < /dev/null 2>/dev/null | wc -c
diff words numbers | head -3
diff words words
cmp words numbers
patch --version | head -1
file words
test -f words; echo $?
test -d missing
expr 3 + 4
seq 3 9
seq -s, 5
factor 360
numfmt --to=iec 4096
date -u -d @0
printenv NOTHING
env -i /bin/echo clean
env X=1 printenv X
id -u
whoami
groups | wc -w
hostname > /dev/null
uname -s
arch
nproc > /dev/null
tty
true
false
yes | head -2
sleep 0
timeout 5 echo in time
timeout 0.1 sleep 5
nice -n 1 echo nice
nohup echo nohup 2>/dev/null
setsid echo session
stdbuf -oL echo buffered
flock lockfile echo locked
flock -n lockfile true
getopt -o a -- -a x
getent passwd root
getconf PAGE_SIZE
locale > /dev/null
ldd /bin/true | grep -c libc.so
which sh
ps -o pid= -p 1
kill -l 9
pwd | wc -l
tput -T xterm cols
clear -T xterm | wc -c
column -t words
look the words
look zzz words
cal -m 1 2001 | head -1
bc <<< '2 ^ 10'
dc -e '2 3 + p'
m4 <<< 'define(x, y)x'
git --version | cut -c 1-3
git init -q g; ls -a g
git hash-object words
openssl version | cut -c 1-7
openssl sha256 words
make --version | head -1
printf 'all:\n\t@echo made\n' > Makefile; make
gcc --version | head -1 | cut -c 1-3
echo 'int main(){return 9;}' > m.c; gcc -o m m.c && ./m
echo '#include <iostream>
int main(){std::cout << "out" << std::endl; std::cerr << "err\n";}' > m.cc; g++ -o mm m.cc && ./mm
cmake --version | head -1 | cut -c 1-5
ar --version | head -1 | cut -c 1-3
nm --version | head -1 | cut -c 1-3
objdump --version | head -1 | cut -c 1-3
readelf -h /bin/true | grep -c Class
size /bin/true | wc -l
ld --version | head -1 | cut -c 1-3
as --version | head -1 | cut -c 1-3
gdb --version 2>/dev/null | head -1 | cut -c 1-3
curl --version 2>/dev/null | head -1 | cut -c 1-4
curl -s file://$PWD/words
ssh -V 2>&1 | cut -c 1-7
rsync --version 2>/dev/null | head -1 | cut -c 1-5
rsync -a words r0 2>/dev/null; ls r0
sqlite3 :memory: 'select 42' 2>/dev/null
lua -e 'print(1)' 2>/dev/null
ruby -e 'puts 1' 2>/dev/null
node -e 'console.log(1)' 2>/dev/null
jq -n 1 2>/dev/null
vim --version 2>/dev/null | head -1 | cut -c 1-3
ed -s words <<< '1p' 2>/dev/null
less words
more words
mount > /dev/null
dmesg --version | cut -c 1-5
lsblk --version | cut -c 1-5
findmnt --version | cut -c 1-7
mkfs.ext4 -V 2>&1 | head -1 | cut -c 1-6
dpkg --version | head -1 | cut -c 1-6
dpkg-query -W -f '${Status}' base-files
apt-config dump | wc -l
script -qc 'echo typed' /dev/null
unshare --version | cut -c 1-7
ip -V 2>/dev/null | cut -c 1-2
ss -V 2>/dev/null | cut -c 1-2
""".strip("\n")


def commands():
    found = []
    for line in COMMANDS.split("\n"):
        # Here-documents and sources go on until their quote ends.
        if found and found[-1].count("'") % 2:
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


class Harmless(rig.PreloadCase):
    """No server is running; nothing of what is done is served."""

    server = False

    def folder(self, name):
        path = self.path(name)
        os.makedirs(os.path.join(path, "sub"))
        with open(os.path.join(path, "words"), "w", encoding="utf-8") as file:
            file.write("the quick brown fox\njumps over\nthe lazy dog\n" * 3)
        with open(os.path.join(path, "numbers"), "w", encoding="utf-8") as file:
            file.write("".join(f"{i}\n" for i in range(100)))
        with open(os.path.join(path, "sub", "inner"), "w", encoding="utf-8") as file:
            file.write("inner\n")
        return path

    def one(self, number, command):
        outcomes = []
        for side in ("with", "sans"):
            folder = self.folder(f"{number}.{side}")
            env = dict(self.env, LC_ALL="C", TERM="dumb")
            if side == "with":
                env["LD_PRELOAD"] = os.path.realpath(rig.LIBRARY)
            done = subprocess.run(["/bin/bash", "-c", command], cwd=folder, env=env, timeout=100,
                                  capture_output=True, stdin=subprocess.DEVNULL)
            files = {}
            for top, _, names in os.walk(folder):
                for name in names:
                    path = os.path.join(top, name)
                    files[path[len(folder):]] = os.path.islink(path) or os.path.getsize(path)
            said = [text.replace(f".{side}".encode(), b"") for text in (done.stdout, done.stderr)]
            outcomes.append((done.returncode, *said, sorted(files)))
        return None if outcomes[0] == outcomes[1] else f"{command}\n  {outcomes[0]}\n  {outcomes[1]}"

    def test_ordinary_programs(self):
        all_of_them = commands()
        self.assertGreaterEqual(len(all_of_them), 200)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [w for w in pool.map(self.one, range(len(all_of_them)), all_of_them) if w]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(all_of_them)}:\n" + "\n".join(wrong))

    def test_can_be_loaded_late(self):
        """A program that loads it itself has little room left for what is thread-local."""
        done = subprocess.run([rig.PYTHON, "-c", f"import ctypes; ctypes.CDLL('{os.path.realpath(rig.LIBRARY)}')"],
                              env=self.env, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    rig.main()
