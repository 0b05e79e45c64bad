#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The first program in the host VM: what guests and tests find there.
# hostinit.sh AGENT MODULES CACHE
agent=$1
modules=$2
cache=$3
release=$(uname -r)

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
mountpoint -q /tmp || mount -t tmpfs -o mode=1777 tmpfs /tmp
mountpoint -q /dev/shm || mount -t tmpfs -o mode=1777 tmpfs /dev/shm

# guests' memory; this needs no khugepaged
mkdir -p /run/pvlab/huge
mount -t tmpfs -o huge=always,size=100%,mode=700 tmpfs /run/pvlab/huge || rmdir /run/pvlab/huge

# /usr again, cached: without that, each start of Python takes seconds
mkdir -p /run/root
if mount -t 9p -o ro,version=9p2000.L,trans=virtio,access=any,msize=512000,cache=loose lab.root /run/root; then
	mount --bind /run/root/usr /usr
fi

# a cache in /tmp is behind this VM's own /tmp
if [ ! -d "$cache" ]; then
	mkdir -p "$cache" && mount --bind "/run/root$cache" "$cache"
fi

# a kernel that is not installed brings its modules from where it was built
if [ "$(readlink -f "/lib/modules/$release")" != "$(readlink -f "$modules")" ]; then
	mount -t tmpfs tmpfs /lib/modules
	ln -s "$modules" "/lib/modules/$release"
fi

ip link set lo up 2>/dev/null
ulimit -l unlimited
ulimit -c 0
modprobe kvm_amd nested=1 2>/dev/null || modprobe kvm_intel nested=1 2>/dev/null
[ -e /dev/kvm ] || echo "<4>lab: no /dev/kvm here, guests cannot run" >/dev/kmsg
echo "<6>lab: host VM is up" >/dev/kmsg
exec "$agent"
