"""Every policy of the simulator on the same batches."""
