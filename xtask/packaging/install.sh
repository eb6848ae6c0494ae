#!/bin/sh
# Installs Adjutant from the tarball beside this script, or from the one that is named.
#   sh install.sh [--prefix DIR] [TARBALL]      installs below DIR (default: ~/.local)
#   sh install.sh [--prefix DIR] --uninstall    removes what it installed
set -eu

prefix=
tarball=
uninstall=no
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -ge 2 ] || { echo "install.sh: --prefix needs a directory" >&2; exit 2; }
        prefix=$2
        shift
        ;;
    --uninstall) uninstall=yes ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "install.sh: unknown option $1" >&2; exit 2 ;;
    *) tarball=$1 ;;
    esac
    shift
done

if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || { echo "install.sh: HOME is not set; name a directory with --prefix DIR" >&2; exit 2; }
    prefix=$HOME/.local
fi
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
list=$prefix/share/adjutant/installed-files

# Removes the files in the list, and the directories in it that are empty now: those that were not there before.
remove_installed() {
    while IFS= read -r path; do
        case $path in
        */) rmdir "$prefix/$path" 2>/dev/null || true ;;
        *) rm -f "$prefix/$path" ;;
        esac
    done <"$list"
}

if [ "$uninstall" = yes ]; then
    [ -f "$list" ] || { echo "install.sh: nothing is installed below $prefix" >&2; exit 1; }
    remove_installed
    echo "removed Adjutant from $prefix"
    exit 0
fi

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || {
    echo "install.sh: this package is for x86-64 Linux, and this is $(uname -s) $(uname -m)" >&2
    exit 1
}
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "$tarball" ]; then
    # The newest: 0.10.0 comes after 0.2.0.
    tarball=$(printf '%s\n' "$here"/adjutant-*-x86_64-linux.tar.xz | sort -V | tail -n 1)
fi
[ -f "$tarball" ] || { echo "install.sh: there is no $tarball" >&2; exit 1; }
sums=$(dirname "$tarball")/SHA256SUMS
if [ -f "$sums" ]; then
    (cd "$(dirname "$tarball")" && grep " $(basename "$tarball")\$" SHA256SUMS | sha256sum -c - >/dev/null) || {
        echo "install.sh: $tarball does not match SHA256SUMS" >&2
        exit 1
    }
fi
names=$(tar -tJf "$tarball" 2>/dev/null) || {
    if command -v xz >/dev/null; then
        echo "install.sh: $tarball is not a tarball of Adjutant" >&2
    else
        echo "install.sh: xz is needed to unpack the tarball; install xz-utils (Debian, Ubuntu) or xz" >&2
    fi
    exit 1
}
# A file from elsewhere would be overwritten now and deleted by --uninstall.
foreign=$(
    echo "$names" | sed -n 's#^[^/]*/\(.*[^/]\)$#\1#p' | while IFS= read -r path; do
        if [ -e "$prefix/$path" ] || [ -L "$prefix/$path" ]; then
            grep -qxF "$path" "$list" 2>/dev/null || echo "$prefix/$path"
        fi
    done
)
if [ -n "$foreign" ]; then
    echo "install.sh: ${foreign%%
*} is not from this installer; remove it, or install elsewhere with --prefix DIR" >&2
    exit 1
fi
[ ! -f "$list" ] || remove_installed
installed=$(
    echo "$names" | sed -n 's#^[^/]*/\(.*[^/]\)$#\1#p'
    echo share/adjutant/installed-files
    # Deepest first; the last one is the prefix itself.
    { echo "$names" | sed -n 's#^[^/]*/\(.*\)/$#\1/#p'; echo share/adjutant/; echo /; } | sort -r |
        while IFS= read -r directory; do [ -d "$prefix/$directory" ] || echo "$directory"; done
)
mkdir -p "$prefix/share/adjutant"
echo "$installed" >"$list"
tar -xJf "$tarball" -C "$prefix" --strip-components=1 --no-same-owner
echo "installed $("$prefix/bin/adjutant" --version) below $prefix"
case ":$PATH:" in
*":$prefix/bin:"*) echo "try it: adjutant demo" ;;
*) echo "try it: $prefix/bin/adjutant demo (add $prefix/bin to PATH)" ;;
esac
