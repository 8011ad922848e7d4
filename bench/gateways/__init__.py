"""Gateways beside each other: what a request costs, where it goes, and which worker gets how much."""
