#!/usr/bin/env python3
"""Runs a command in a root file system of its own, as process 2 of new mount and process namespaces.

    in_root.py ROOT UID [NAME=VALUE ...] COMMAND ...

Start it with `unshare --mount --pid --fork --kill-child`, as root. This is not chroot, in which the kernel allows no user
namespaces: the root is mounted and the old one is unmounted. /proc is mounted; /dev is the machine's if ROOT has
/dev/null, otherwise it stays as it is.
"""

import ctypes, os, sys

MS_BIND, MS_REC, MNT_DETACH, PIVOT_ROOT = 0x1000, 0x4000, 2, 155
libc = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        raise SystemExit(f"in_root.py: {what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind, flags):
    checked(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None), f"mount {target}")


def main():
    root, uid, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    environment = {}
    while "=" in words[0]:
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    mount(root, root, None, MS_BIND | MS_REC)
    mount("proc", f"{root}/proc", "proc", 0)
    if os.path.exists(f"{root}/dev/null"):
        mount("/dev", f"{root}/dev", None, MS_BIND | MS_REC)
    os.chdir(root)
    # The old root is mounted over the new one, where `.` still names it.
    checked(libc.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
    checked(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir(environment.get("HOME", "/"))
    child = os.fork()
    if child == 0:
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        try:
            os.execvpe(words[0], words, environment)
        except OSError as error:
            print(f"{words[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    while True:
        ended, status = os.wait()
        if ended == child:
            # Leaving the first process of the namespace ends all others.
            sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


main()
