#!/bin/sh
# Stands for busybox in the tests of network.rs, through a link: writes its arguments down beside the link, and fails with the words in
# refuse-PROGRAM where that lies there.
here=${0%/*}
echo "$*" >>"$here/asked"
case "$*" in
*" mtu "*) refusal=$here/refuse-mtu ;;
*) refusal=$here/refuse-$1 ;;
esac
[ ! -e "$refusal" ] || { cat "$refusal" >&2; exit 1; }
