"""SGLang adapter: the policies of `coresched` inside SGLang's own scheduler, as a plugin that SGLang loads."""
