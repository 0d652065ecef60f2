#!/bin/sh
# add.sh DIRECTORY PROGRAM OUTPUT: writes the initial RAM disk of DIRECTORY, which prepare.sh made,
# with a program and its libraries added as /bin/server.
set -eu
dir=$1 program=$2 output=$3
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/bin"
cp "$program" "$tree/bin/server"
for file in $(ldd "$program" | grep -o '/[^ ]*' | sort -u); do
    mkdir -p "$tree$(dirname "$file")"
    cp -L "$file" "$tree$file"
done
# The kernel unpacks one archive after the other.
cp "$dir/initrd" "$output"
(cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >>"$output"
