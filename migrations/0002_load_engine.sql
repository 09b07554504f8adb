-- What the load engine tells beside its I/Os, and the rest of the figures of an open loop.

ALTER TABLE case_workers ADD COLUMN io_wq_cpu REAL; -- CPUs that the kernel's io-wq workers used; none until Finished came
ALTER TABLE case_disks ADD COLUMN flushes INTEGER NOT NULL DEFAULT 0; -- in the window
