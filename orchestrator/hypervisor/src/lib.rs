//! Where workers run: the Hypervisor trait and its providers.
