"""SGLang's scheduling policies side by side, in its real scheduler on a simulated device."""
