#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Programs that ask much of a file system, in a guest on pvfs and on the host beside it."""

import re
import shutil
import subprocess
from pathlib import Path

from pvfs import TOP, serve
from pvlab import image, ktap
from sidebyside import SideBySide

PROGRAMS = ("git", "sqlite3", "postmark")
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


class Apps(SideBySide):
    turns = 30
    files, transactions = 100, 200

    @classmethod
    def start_server(cls):
        cls.overlay = {**image.overlay(*PROGRAMS), "usr/bin/git-upload-pack": UPLOAD_PACK}
        cls.socket = serve(cls, "pvio", "--privileged-xattr", "map")
        for tree in ("fs/pvfs", "drivers/vhost/poll"):
            shutil.copytree(TOP / tree, cls.share / "source" / Path(tree).name)
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


def on_host(command, where):
    return subprocess.run(
        command, shell=True, cwd=where, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    ktap.main()
