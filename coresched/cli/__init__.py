"""The `coresched` command: one module a subcommand; each parses, calls and prints."""
