"""From memory and workload to pool sizes and the sample concurrency that fits."""
