"""Which idle cache entry a worker gives up, as other engines and papers have it: one small file each."""
