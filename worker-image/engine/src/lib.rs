//! io_uring load generator for block devices and files.
