"""The scheduler as a gRPC service: one router that many harness processes share."""
