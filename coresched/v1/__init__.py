"""The gRPC interface `coresched.v1`; its modules are generated from proto/ when the package is built."""
