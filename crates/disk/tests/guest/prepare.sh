#!/usr/bin/env bash
# Makes what tests/guest.rs boots: a stock kernel of Debian 13 and an initial RAM disk with busybox,
# the kernel's modules, e2fsprogs and ./init. All of it lies in $ZFOLD_GUEST_DIR (target/guest of
# this repository by default); nothing is installed.
#
# Needs Debian's apt, dpkg, busybox-static, xz, cpio and e2fsprogs, and fetches about 120 MB
# once, from the mirror that the machine uses already. After changes to ./init it takes a second.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source "$here/../../../../.ci/lib"
dir=${ZFOLD_GUEST_DIR:-$here/../../../../target/guest}
# Where the modules that ./init loads, and those they need, lie.
parts="drivers/block/virtio* drivers/virtio fs/ext4 fs/jbd2 fs/mbcache* lib crypto
    arch/x86/crypto"

mkdir -p "$dir"
cd "$dir"
dir=$PWD

fetch_kernel() {
    local package
    own_apt amd64
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-.*\)/\1/p' |
        head -n 1)
    [ -n "$package" ] || { echo "no kernel package on the mirror" >&2; exit 1; }
    apt-get -q download "$package"
    rm -rf root.new root
    dpkg-deb -x "$package"_*.deb root.new
    rm -f "$package"_*.deb
    mv root.new root
}

# copy PROGRAM: with the libraries it needs.
copy() {
    path=$(command -v "$1")
    for file in "$path" $(ldd "$path" | grep -o '/[^ ]*' | sort -u); do
        mkdir -p "tree$(dirname "$file")"
        cp -L "$file" "tree$file"
    done
}

[ -d root ] || fetch_kernel
modules=$(echo root/usr/lib/modules/* root/lib/modules/* | tr ' ' '\n' | grep -v '[*]' | head -n 1)
version=$(basename "$modules")
cp "root/boot/vmlinuz-$version" vmlinuz

rm -rf tree
mkdir -p tree/bin tree/dev tree/proc tree/sys tree/mnt tree/tmp tree/etc tree/lib
cp "$(command -v busybox)" tree/bin/busybox
cp "$here/init" tree/init
chmod +x tree/init
ln -s /proc/mounts tree/etc/mtab
copy mke2fs
copy e2fsck
# Decompressed, which busybox wants them, but only these: all of them would take minutes.
target=tree/lib/modules/$version
mkdir -p "$target"
cp "$modules"/modules.builtin* "$modules"/modules.order "$target"
(cd "$modules/kernel" && find $parts -name '*.ko*' 2>/dev/null) | while read -r file; do
    mkdir -p "$target/kernel/$(dirname "$file")"
    case $file in
        *.xz) xz -dc "$modules/kernel/$file" >"$target/kernel/${file%.xz}" ;;
        *) cp "$modules/kernel/$file" "$target/kernel/$file" ;;
    esac
done
busybox depmod -b tree "$version"
(cd tree && find . | cpio --quiet -o -H newc) | gzip -1 >initrd.new
mv initrd.new initrd
echo "$dir: Linux $version"
