#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs that ask much of a file system, in a guest on pvfs and on the host beside it."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path

from pvfs import TOP, serve
from pvlab import image, ktap
from sidebyside import SideBySide

PROGRAMS = ("git", "sqlite3", "postmark", "dbench", "fs_mark")
# All of it is half a million lines.
DBENCH_LOAD, DBENCH_LINES = "/usr/share/dbench/client.txt", 2000
# `git clone` runs it by this name, which Debian has in another directory.
UPLOAD_PACK = b'#!/bin/sh\nexec git upload-pack "$@"\n'

SQLITE = """
sqlite3 db '
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT, data BLOB);
CREATE INDEX i ON t (word);'
sqlite3 db '
PRAGMA wal_autocheckpoint = 20;
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 400)
INSERT INTO t SELECT x, printf("%x", x * 7919), zeroblob(x * 37 % 3000) FROM n;
UPDATE t SET word = word || "!" WHERE id % 3 = 0;
BEGIN; DELETE FROM t; ROLLBACK;
DELETE FROM t WHERE id % 5 = 0;'
sqlite3 db 'PRAGMA integrity_check; SELECT count(*), sum(length(data)), max(word) FROM t;
PRAGMA wal_checkpoint(TRUNCATE);'
sqlite3 db 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE);'
ls
"""
# Both have the database open, so they share its memory by a file.
SQLITE_TWICE = """
sqlite3 db 'PRAGMA journal_mode = WAL; CREATE TABLE t (who, n);'
for who in a b; do
	for n in $(seq {turns}); do echo "INSERT INTO t VALUES (\\"$who\\", $n);"; done |
		sqlite3 -cmd '.timeout 60000' db &
	eval $who=$!
done
wait $a && wait $b
sqlite3 db 'SELECT who, count(DISTINCT n), max(n) FROM t GROUP BY who; PRAGMA integrity_check;'
"""

GIT = """
export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git config --global pack.threads 1
git config --global safe.directory '*'
git init -q --template= -b main repo
cp -r ../source/. repo && cd repo
git add . && git commit -q -m one
git mv pvfs moved && echo more >>moved/pvfs.h && git rm -q -r poll && git add .
git commit -q -m two && git tag two
git status --porcelain
git gc -q
git fsck --full --strict 2>&1
cd .. && git clone -q --template= file://$PWD/repo clone 2>&1
cd clone && git fsck --full --strict 2>&1
git log --format=%H --stat
git checkout -q HEAD~1 && git status --porcelain && git rev-parse HEAD
# They hold inode numbers, times and this directory's name.
rm -r .git/index .git/config .git/logs ../repo/.git/index .git/packed-refs ../.gitconfig
"""

POSTMARK = """
cat >config <<end
set location files
set number {files}
set transactions {transactions}
set seed 42
set size 100 20000
run report
quit
end
mkdir files
postmark config >/dev/null
ls files
sed -n 's/(.*//; /created\\|read\\|appended\\|deleted\\|files\\|bytes/p' report
rm report
"""

# A client stops at the first answer that is not the one in its load file.  It repeats the file
# until its time is over, so only that it came to that end is the same on both sides.
DBENCH = """
dbench -t {seconds} -c {load} -D . --skip-cleanup {clients} >log 2>&1 || {{ cat log; false; }}
grep -c '^Throughput' log
ls clients
rm -r clients log
"""
# Without a sync, and with fsync() before and after the files are closed; names are random.
FS_MARK = """
for sync in 0 1 5; do
	mkdir d && fs_mark -k -S $sync -d d -D 4 -N {each} -n {files} -s 5000 -t 1 >log 2>&1
	echo $sync $(find d -type d | wc -l) $(find d -type f -size -11 -size +9 | wc -l)
	rm -r d log
	rm -f fs_log.txt
done
"""


class Apps(SideBySide):
    turns = 30
    files, transactions = 100, 200
    clients = 2

    @classmethod
    def start_server(cls):
        cls.overlay = {**image.overlay(*PROGRAMS), "usr/bin/git-upload-pack": UPLOAD_PACK}
        cls.socket = serve(cls, "pvio", "--privileged-xattr", "map")
        for tree in ("fs/pvfs", "drivers/vhost/poll"):
            shutil.copytree(TOP / tree, cls.share / "source" / Path(tree).name)
        (cls.share / "load").write_text(dbench_load())
        return cls

    def test_sqlite(self):
        here, there, said = self.both("sqlite", SQLITE)
        self.assertIn("ok\n320|", said)
        self.assertEqual((there / "db").read_bytes(), (here / "db").read_bytes())
        self.same(here, there)

    def test_sqlite_by_two_processes(self):
        _, there, said = self.both("sqlite-twice", SQLITE_TWICE.format(turns=self.turns))
        self.assertEqual(
            said, f"wal\na|{self.turns}|{self.turns}\nb|{self.turns}|{self.turns}\nok\n"
        )
        self.assertEqual(on_host("sqlite3 db 'PRAGMA integrity_check'", there), "ok\n")

    def test_git(self):
        here, there, _ = self.both("git", GIT)
        self.same(here, there)

    def test_postmark(self):
        here, there, said = self.both(
            "postmark", POSTMARK.format(files=self.files, transactions=self.transactions)
        )
        created, deleted = (
            int(re.search(rf"^\s*(\d+) {word}", said, re.M)[1]) for word in ("created", "deleted")
        )
        self.assertGreater(created, self.files)
        self.assertEqual(created, deleted)
        self.same(here, there)

    def test_dbench(self):
        _, _, said = self.both(
            "dbench", DBENCH.format(seconds=5, load="../load", clients=self.clients)
        )
        self.assertEqual(said, "1\n" + "".join(f"client{i}\n" for i in range(self.clients)))

    def test_fs_mark(self):
        files = 8
        _, _, said = self.both("fs_mark", FS_MARK.format(each=files // 4, files=files))
        self.assertEqual(said, "".join(f"{sync} 5 {files}\n" for sync in (0, 1, 5)))


def dbench_load():
    """The first lines of dbench's load file, and a Close for each handle that they leave open."""
    with open(DBENCH_LOAD) as load:
        lines = list(itertools.islice(load, DBENCH_LINES))
    handles = {}
    for line in lines:
        word, *arguments = line.split()
        if word == "NTCreateX" and arguments[-1] == "NT_STATUS_OK":
            handles[arguments[-2]] = f"Close {arguments[-2]} NT_STATUS_OK\n"
        elif word == "Close":
            handles.pop(arguments[0], None)
    return "".join([*lines, *handles.values()])


def on_host(command, where):
    return subprocess.run(
        command, shell=True, cwd=where, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    ktap.main()
