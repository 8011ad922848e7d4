"""SGLang's own scheduler in this process and in virtual time: no HTTP, no sleeping, repeatable."""
