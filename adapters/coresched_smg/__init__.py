"""LBCH through routers with a hash ring of their own (smg, sglang-router), by minted routing keys."""
