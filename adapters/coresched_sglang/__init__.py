"""SGLang adapter: the policies of coresched inside SGLang's own scheduler, as a plugin it loads."""
