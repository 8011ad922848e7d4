"""The batch that a service holds for many client processes: the same words as the embedded one."""
