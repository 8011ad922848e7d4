"""SGLang's own schedulers as the workers of the lab's lockstep runs."""
