#!/bin/sh
# Installs zfold from the files of a release, as `contrib/package` makes them, and changes nothing
# where their sums do not match. For containers and CI; it needs tar, gzip, sha256sum, and for a URL
# curl or wget.
#
#   FROM=FOLDER-OR-URL [TO=/usr/local/bin] [SHA256=SUM] install.sh
#
# The release's own sums come from the same place, so they find damage, and no forger: SHA256 is the
# sum that its archive for this machine must have. A URL begins with https://, also after a redirect.
# As a feature of a development container, FROM, TO and SHA256 are its options.
set -eu

fail() {
    echo "zfold: $1" >&2
    exit 1
}

from=${FROM:-} to=${TO:-/usr/local/bin} sum=${SHA256:-}
[ -n "$from" ] || fail "nothing to install from: give FROM, the folder or the URL of a release"
machine=$(uname -m)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# get NAME: puts a file of the release into the scratch folder.
get() {
    case $from in
        http://*)
            fail "http lets others change what is installed: give FROM an https URL, or a folder"
            ;;
        https://*)
            if command -v curl >/dev/null; then
                curl -fsSL --proto =https --retry 3 -o "$scratch/$1" "${from%/}/$1"
            elif ! command -v wget >/dev/null; then
                fail "neither curl nor wget: install one of them"
            elif [ -n "$sum" ]; then
                wget -qO "$scratch/$1" "${from%/}/$1"
            else
                # It follows redirects to http.
                fail "no curl: install it, or give SHA256, the sum of the archive"
            fi
            ;;
        *) cp "$from/$1" "$scratch/$1" ;;
    esac || fail "no $1 in $from: is it a release of zfold?"
}

get SHA256SUMS
archive=$(sed -nE "s/^[0-9a-f]{64} [ *](zfold-[0-9][^ /]*-$machine-linux\.tar\.gz)\$/\1/p" "$scratch/SHA256SUMS")
[ -n "$archive" ] || fail "this release has no program for $machine"
[ "$(printf '%s\n' "$archive" | wc -l)" -eq 1 ] || fail "this release has several programs for $machine"
get "$archive"
(cd "$scratch" && grep -F " $archive" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
    fail "$archive is damaged: its sum is another one"
[ -z "$sum" ] || (cd "$scratch" && echo "$sum  $archive" | sha256sum -c - >/dev/null 2>&1) ||
    fail "$archive is another one than expected: its sum is not $sum"

tar -xzf "$scratch/$archive" -C "$scratch"
mkdir -p "$to"
# Beside its place and then into it, so that nobody starts half a program.
cp "$scratch/${archive%.tar.gz}/zfold" "$to/.zfold.$$"
chmod 755 "$to/.zfold.$$"
mv "$to/.zfold.$$" "$to/zfold"
"$to/zfold" --version
