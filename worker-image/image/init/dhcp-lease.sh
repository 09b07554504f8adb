#!/bin/sh
# Called by udhcpc with what came of asking. Sets the interface and leaves the lease for init to show:
# /run/lease/INTERFACE with "ADDRESS PREFIX ROUTER MTU", a dash for what the lease does not say.
# FIXED_MTU comes from the bootstrap data and wins over the network's; METRIC keeps default routes apart.
lease=/run/lease/$interface
case $1 in
deconfig)
    rm -f "$lease"
    ifconfig "$interface" 0.0.0.0 up
    ;;
bound | renew)
    ifconfig "$interface" "$ip" netmask "${subnet:-255.255.255.0}" up
    mtu=${FIXED_MTU:-$mtu}
    [ -z "$mtu" ] || ip link set dev "$interface" mtu "$mtu"
    router=${router%% *}
    if [ -n "$router" ]; then
        while ip route del default dev "$interface" 2>/dev/null; do :; done
        ip route add default via "$router" dev "$interface" metric "${METRIC:-100}"
    fi
    echo "$ip ${mask:--} ${router:--} ${mtu:--}" >"$lease.new" && mv "$lease.new" "$lease"
    ;;
esac
